"""What servers say when they refuse: each real wording comes to its class of failure."""

from __future__ import annotations

import json

import pytest
from multidict import CIMultiDict

from holdfast.protocol.failures import SAID_CHARS, FailureCode
from holdfast.providers.errors import DETAIL_CHARS, context_window, from_status, retry_after_s

NOW_S = 1_795_219_200.0
"""2026-11-21 00:00:00 UTC."""

OVERFLOWS = [
    (
        "This model's maximum context length is 128000 tokens. However, you sent 130012",
        128_000,
    ),
    ('{"error":{"code":"context_length_exceeded","message":"too long"}}', 0),
    ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),
    ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease", 200_000),
    ("This model's maximum context length is 4,096 tokens, however you requested 5000 tokens", 4_096),
    ("the request exceeds the available context size (4096 tokens), try increasing it", 4_096),
    ("exceed_context_size_error", 0),
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
    ("The input token count (1500000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
    ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768),
    ("`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000", 8_193),
    ("context length of only 4096 tokens", 4_096),
    ("input length exceeds the context length", 0),
    ("Input is too long for requested model.", 0),
]


@pytest.mark.requirement("L7", "C6")
@pytest.mark.parametrize(("body", "tokens"), OVERFLOWS)
def test_a_complaint_about_length_is_an_overflow_with_the_window_it_names(body: str, tokens: int) -> None:
    failure = from_status(400, {}, body, "openai:m")
    assert (failure.code, failure.tokens) == ("context_overflow", tokens)


@pytest.mark.requirement("L7")
@pytest.mark.parametrize(
    "body",
    [
        "max_tokens: 20000 > 8192, which is the maximum allowed number of output tokens",
        "max_tokens must be <= 4096",
        "tools.0.name: String should match pattern",
        "Invalid value for 'context'",
    ],
)
def test_other_complaints_are_no_overflow(body: str) -> None:
    assert context_window(body) is None
    assert from_status(400, {}, body, "openai:m").code == "provider_fatal"


CLASSES: list[tuple[int, str, FailureCode]] = [
    (401, "Incorrect API key", "provider_refused"),
    (402, "Insufficient Balance", "provider_refused"),
    (403, "Country not supported", "provider_refused"),
    (429, '{"error":{"code":"insufficient_quota"}}', "provider_refused"),
    (400, "Your credit balance is too low to access the Anthropic API", "provider_refused"),
    (429, "Rate limit reached", "rate_limited"),
    (404, "model not found", "provider_fatal"),
    (405, "", "provider_fatal"),
    (422, "bad field", "provider_fatal"),
    (302, "", "provider_fatal"),
    (413, "Request too large for model in tokens per minute", "context_overflow"),
    (400, '{"error":{"code":"tool_use_failed"}}', "provider_transient"),
    (408, "", "provider_transient"),
    (409, "", "provider_transient"),
    (500, "oops", "provider_transient"),
    (502, "<html>", "provider_transient"),
    (529, "Overloaded", "provider_transient"),
]


@pytest.mark.requirement("C15", "L7")
@pytest.mark.parametrize(("status", "body", "code"), CLASSES)
def test_each_status_has_its_class(status: int, body: str, code: FailureCode) -> None:
    assert from_status(status, {}, body, "openai:m").code == code


@pytest.mark.requirement("C15")
def test_the_message_is_ours_and_the_servers_words_are_a_clipped_detail() -> None:
    failure = from_status(404, {}, "<script>" + "x" * 10_000, "openai:gpt-nope")
    assert "openai:gpt-nope" in failure.message
    assert "script" not in failure.message
    assert len(failure.detail) == DETAIL_CHARS


ROUTED = json.dumps(
    {
        "error": {
            "message": "Provider returned error",
            "metadata": {"raw": '{"error":{"message":"prompt too long"}}'},
        }
    }
)
SENTENCES = [
    (
        '{"error":{"message":"Unsupported value: temperature","type":"invalid_request_error"}}',
        "Unsupported value: temperature",
    ),
    (
        '{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too large"}}',
        "max_tokens: too large",
    ),
    (
        '{"error":"model \\"x\\" not found, try pulling it first"}',
        'model "x" not found, try pulling it first',
    ),
    (
        '{"object":"error","message":"The model `x` does not exist.","code":404}',
        "The model `x` does not exist.",
    ),
    ('{"detail":"Not Found"}', "Not Found"),
    ('{"detail":[{"loc":["body","model"],"msg":"Field required"}]}', "Field required"),
    (
        '[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]',
        "API key not valid.",
    ),
    (ROUTED, "Provider returned error: prompt too long"),
    ("Bad   request:\n no model\x1b[2J", "Bad request: no model [2J"),
    ("<html><body>Gateway</body></html>", ""),
    ('{"error":{"code":7}}', ""),
    ("", ""),
]


@pytest.mark.requirement("C15")
@pytest.mark.parametrize(("body", "sentence"), SENTENCES)
def test_the_sentence_of_a_refusal_is_found_in_every_shape(body: str, sentence: str) -> None:
    failure = from_status(400, {}, body, "openai:m")
    assert failure.said == sentence
    assert sentence not in failure.message or not sentence


@pytest.mark.requirement("C15", "C7")
def test_a_long_sentence_ends_after_a_whole_word() -> None:
    secret = "Zk3mQ8" * 12
    failure = from_status(400, {}, "word " * 94 + secret + " more" * 99, "openai:m")
    assert failure.said == ("word " * 94).rstrip() + "…"
    assert len(from_status(400, {}, "x" * 900, "openai:m").said) == SAID_CHARS


@pytest.mark.requirement("C16", "L7")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Sat, 21 Nov 2026 00:01:00 GMT"}, 60.0),
        (
            {"retry-after": "Sat, 21 Nov 2026 00:01:00 GMT", "date": "Sat, 21 Nov 2026 00:00:50 GMT"},
            10.0,
        ),
        ({"retry-after": "Fri, 20 Nov 2026 00:00:00 GMT"}, 0.0),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "120ms", "x-ratelimit-reset-requests": "1h"}, 0.12),
        (
            {
                "x-ratelimit-reset-tokens": "120ms",
                "x-ratelimit-reset-requests": "7.66s",
                "x-ratelimit-remaining-requests": "0",
            },
            7.66,
        ),
        ({"x-ratelimit-reset": "1795219230000"}, 30.0),
        ({"anthropic-ratelimit-requests-reset": "2026-11-21T00:00:12Z"}, 12.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "nan", "retry-after": "2"}, 2.0),
        ({"retry-after": "1_0"}, None),
        ({"retry-after": "Sat, 21 Nov 99999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 00:00:00 +99999999999999999999"}, None),
        ({"x-ratelimit-reset": "nan"}, None),
    ],
)
def test_how_long_to_wait_is_read_from_every_spelling(
    headers: dict[str, str], expected: float | None
) -> None:
    assert retry_after_s(headers, NOW_S) == (None if expected is None else pytest.approx(expected))


@pytest.mark.requirement("A3", "C16")
@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "1e400"},
        {"retry-after": "inf"},
        {"retry-after": "86401"},
        {"retry-after": "252455616000"},
        {"retry-after-ms": "1e300"},
        {"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"},
        {"x-ratelimit-reset-requests": "9" * 400 + "h"},
        {"x-ratelimit-reset-requests": "70080000h0m0s"},
        {"x-ratelimit-reset": "1e400"},
    ],
    ids=lambda headers: str(headers)[:60],
)
def test_nobody_is_waited_for_longer_than_a_day(headers: dict[str, str]) -> None:
    assert retry_after_s(headers, NOW_S) == 86_400.0


@pytest.mark.requirement("A6")
def test_headers_count_in_any_case() -> None:
    reset = {"X-RateLimit-Reset-Tokens": "9s", "X-RateLimit-Reset-Requests": "2s"}
    headers = CIMultiDict({**reset, "X-RateLimit-Remaining-Requests": "0"})
    assert retry_after_s(headers, NOW_S) == 2.0
    assert retry_after_s(CIMultiDict({**reset, "Retry-After": "4"}), NOW_S) == 4.0
