"""Turns a provider's refusal (status, headers and body) into a Failure. It sends nothing.

The message is a safe sentence of ours: what happened, and what to do. The server's own sentence is kept apart from it
(`Failure.said`), and its whole text is in the detail, clipped.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from holdfast.protocol.failures import LONGEST_WAIT_S, SAID_CHARS, Failure
from holdfast.protocol.untrusted import decode_untrusted

DETAIL_CHARS = 2_000
OVERLOADED = 529
"""Anthropic's status for "too busy". An error without a status counts as this one."""

_OF_REQUEST = frozenset({408, 409, 425})
"""What these refuse may pass, and other requests are answered meanwhile."""
_WINDOW_PHRASES = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"maximum (?:context|prompt) length (?:is|of) (?P<window>[\d,]+)",
        r"prompt is too long: [\d,]+ tokens > (?P<window>[\d,]+) maximum",
        r"exceed context limit: [\d,]+ \+ [\d,]+ > (?P<window>[\d,]+)",
        r"available context size \((?P<window>[\d,]+)",
        r"maximum number of tokens allowed \((?P<window>[\d,]+)",
        r"too large for model with (?P<window>[\d,]+) maximum context",
        r"context length of (?:only )?(?P<window>[\d,]+)",
        r"inputs. tokens \+ .{0,40} must be <= (?P<window>[\d,]+)",
        r"context[_ ]length[_ ]exceeded|exceed_context_size",
        r"exceeds?(?: the| this)?(?: model's)?(?: maximum)?(?: available)? context (?:length|size|window)",
        r"(?:prompt|input|request) (?:is )?too (?:long|large)",
        r"context window .{0,40}exceed",
    )
)
_NO_MONEY = re.compile(
    r"insufficient_quota|credit balance is too low|billing_hard_limit|insufficient (?:balance|credits)", re.I
)
_SENTENCE_KEYS = ("message", "error", "detail", "msg", "title")
_WORD_CHARS = 200
"""Longer words are taken for noise: the text is cut inside them."""
_GO_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": OVERLOADED,
}


class BadResponse(Exception):
    """The response is not usable. The adapter returns the failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def wrong_shape(what: str, content: str) -> Failure:
    """Return the failure for a response that breaks the protocol. It may be a proxy's, so it is transient."""
    return Failure("provider_transient", f"The model's server sent {what}.", clip(content))


def cut_short(detail: str = "") -> Failure:
    """Return the failure for a response that ended too early."""
    return Failure("provider_transient", "The model's response broke off.", clip(detail))


def from_status(status: int, headers: Mapping[str, str], body: str, model: str) -> Failure:
    """Return the failure for a status other than 200. Header names are lower case; `model` is PROVIDER:MODEL."""
    return msgspec.structs.replace(
        _from_status(status, headers, body, model), said=clip(said(body), SAID_CHARS)
    )


def _from_status(status: int, headers: Mapping[str, str], body: str, model: str) -> Failure:
    detail = clip(f"status {status}: {body}")
    provider = model.partition(":")[0]
    if status in (401, 402, 403) or (status in (400, 429) and _NO_MONEY.search(body)):
        return Failure("provider_refused", f"{provider} {_refusal(status)}", detail)
    if status == 429:
        wait_s = retry_after_s(headers, time.time())
        return Failure("rate_limited", f"{provider} asks for fewer requests.", detail, retry_after_s=wait_s)
    window = context_window(body) if status in (400, 413, 422, 500) else None
    if window is not None or status == 413:
        message = f"The conversation is longer than the window of {model}. Use a model with a larger one."
        if window is None:  # a server in between may have a limit of bytes
            message = (
                f"The server of {model} refused the request as too large. Send less, or use another server."
            )
        return Failure("context_overflow", message, detail, tokens=window or 0)
    is_of_request = status in _OF_REQUEST or (status < 500 and "tool_use_failed" in body)
    if status >= 500 or is_of_request:
        wait_s = retry_after_s(headers, time.time())
        return Failure(
            "provider_transient",
            f"{provider} could not answer now.",
            detail,
            retry_after_s=wait_s,
            is_of_request=is_of_request,
        )
    return Failure("provider_fatal", _fatal(status, model), detail)


def from_error_object(error: object, model: str) -> Failure:
    """Return the failure for an error object inside a stream that began with status 200."""
    body = error if isinstance(error, str) else msgspec.json.encode(error).decode()
    return from_status(_named_status(error), {}, body, model)


def context_window(text: str) -> int | None:
    """Return the window in tokens from an error about length, or 0 if it names none; None for other texts."""
    for phrase in _WINDOW_PHRASES:
        if found := phrase.search(text):
            named = found.groupdict().get("window")
            return int(named.replace(",", "")) if named else 0
    return None


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return how long the server asks to wait, in seconds and at most a day; None if it does not say.

    `now_s` is seconds since 1970. An HTTP date is measured against the server's own Date if there is one.
    """
    wait_s = _asked_s(headers, now_s)
    return None if wait_s is None else min(max(wait_s, 0.0), LONGEST_WAIT_S)


def quiet_s(status: int, headers: Mapping[str, str]) -> float:
    """Return how long the server wants no further calls with this key: it says so with a refusal, or any response
    says that a limit is used up. 0: it does not say.
    """
    now_s = time.time()
    asked = _asked_s(headers, now_s) if status == 429 else _after_s(headers, now_s) if status >= 500 else None
    used_up = _used_up_s(headers, now_s)
    return min(max(asked or 0.0, used_up or 0.0), LONGEST_WAIT_S)


def clip(text: str, chars: int = DETAIL_CHARS) -> str:
    """Return the beginning of a text. It ends after a whole word, so that no half of a secret is left that nobody
    would recognize.
    """
    if len(text) <= chars:
        return text
    begin = text[: chars - 1]
    whole, space, word = begin.rpartition(" ")
    return (whole if space and len(word) <= _WORD_CHARS else begin) + "…"


def said(body: str) -> str:
    """Return the sentence in the body of a refusal, on one line; empty if it has none, or is a page for browsers."""
    if body.lstrip().startswith("<"):
        return ""
    try:
        found = _sentence(decode_untrusted(body))
    except msgspec.DecodeError:
        found = body
    shown = "".join(each if each.isprintable() else " " for each in found)
    return " ".join(shown.split())


def _sentence(value: object) -> str:
    """Return the first sentence that servers put into these places: `{"error": {"message"}}`, `{"error"}`,
    `{"message"}`, `{"detail"}`, `{"detail": [{"msg"}]}`, and each of them in a list.
    """
    match value:
        case str():
            return value
        case list() if value:
            return _sentence(value[0])
        case dict():
            places = (value.get(key) for key in _SENTENCE_KEYS)
            sentence = next((found for place in places if (found := _sentence(place))), "")
            return _with_origin(sentence, value.get("metadata"))
    return ""


def _with_origin(sentence: str, metadata: object) -> str:
    """Return the sentence with that of the server behind a router, if the router tells it."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    origin = said(raw) if isinstance(raw, str) else ""
    return f"{sentence}: {origin}" if origin else sentence


def _refusal(status: int) -> str:
    match status:
        case 401:
            return (
                "did not accept the API key. Put a valid key into the variable that `holdfast models` shows."
            )
        case 403:
            return "does not allow this key to do that. Use another key, or another model."
        case _:
            return (
                "asks for payment: the account has no credit or quota left. Add credit, or use another model."
            )


def _fatal(status: int, model: str) -> str:
    if 300 <= status < 400:
        return (
            f"The server of {model} answered with a redirect, which is not followed with a key. Set its"
            " base_url to the final address."
        )
    if status == 404:
        return (
            f"The server does not know the model {model}, or its base_url is wrong. `holdfast models --all` lists"
            " the models that are known here."
        )
    return (
        f"The server of {model} refused the request (status {status}), and would refuse it again. Change what it"
        " complains about, or use another model."
    )


def _named_status(error: object) -> int:
    if not isinstance(error, dict):
        return OVERLOADED
    for key in ("status_code", "status", "code"):
        if (number := _number(error.get(key))) is not None and 400 <= number < 600:
            return int(number)
    for key in ("code", "type"):
        name: Any = error.get(key)
        if isinstance(name, str) and name in _STATUS_OF_TYPE:
            return _STATUS_OF_TYPE[name]
    return OVERLOADED


def _asked_s(headers: Mapping[str, str], now_s: float) -> float | None:
    after_s = _after_s(headers, now_s)
    return after_s if after_s is not None else _reset_s(headers, now_s)


def _after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    if after := headers.get("retry-after"):
        if (seconds := _number(after)) is not None:
            return seconds
        if (at_s := _date(after)) is not None:
            return at_s - (_date(headers.get("date", "")) or now_s)
    return None


def _reset_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the longest wait among the exhausted rate limits, otherwise the shortest of all."""
    used_up_s = _used_up_s(headers, now_s)
    if used_up_s is not None:
        return used_up_s
    resets = [value for header, value in headers.items() if _is_about_limits(header.lower(), "reset")]
    return min([wait_s for each in resets if (wait_s := _wait(each, now_s)) is not None], default=None)


def _used_up_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return the longest wait for a limit that is used up; None if none is."""
    longest: float | None = None
    for header, value in headers.items():
        if value != "0" or not _is_about_limits(name := header.lower(), "remaining"):
            continue
        wait_s = _wait(headers.get(name.replace("remaining", "reset"), ""), now_s)
        if wait_s is not None and wait_s > (longest or 0.0):
            longest = wait_s
    return longest


def _is_about_limits(name: str, what: str) -> bool:
    return "ratelimit" in name and what in name


def _wait(value: str, now_s: float) -> float | None:
    """Return the seconds to wait: a duration (`6m0s`, `120ms`, `7.5`), a time in s or ms since 1970, or a date."""
    if (number := _number(value)) is not None:
        if number > 1e11:
            number /= 1000
        return max(number - now_s, 0.0) if number > 1e9 else max(number, 0.0)
    if _GO_DURATION.sub("", value) == "":
        return sum(float(amount) * _SECONDS[unit] for amount, unit in _GO_DURATION.findall(value))
    at_s = _date(value)
    return None if at_s is None else max(at_s - now_s, 0.0)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return None  # Python would accept both as numbers
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _date(text: str) -> float | None:
    """Return the seconds since 1970 of an HTTP date or an ISO time."""
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None
