"""What the web tools share: their limits, which types are text, and how a result shows what a stranger wrote.

The content of a result lies between two marks, which name a hash of it, so that nothing in it can pass for Holdfast's
words. `egress` sends requests.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.protocol.counts import counted
from holdfast.protocol.ports import CallContext, RawResult
from holdfast.redact import Redactor, make_redactor
from holdfast.sandbox.names import Lookup, system_lookup

if TYPE_CHECKING:
    from holdfast.access.credentials import Credentials
    from holdfast.tools.egress import Request, Response

TIMEOUT_S = 30.0
"""The longest that one call takes, with all redirects."""
HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(
    r"text/[\w.+-]+|[\w.-]+/[\w.-]+\+(?:json|xml|yaml)|application/(?:json|ld-json|x-ndjson|jsonl|json-seq|xml"
    r"|javascript|ecmascript|x-javascript|yaml|x-yaml|toml|sql|graphql|x-sh|x-www-form-urlencoded|rtf)"
)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]{1,40})", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-8(?:-sig)?|utf-(?:16|32)(?:-[lb]e)?|ascii|iso8859-\d{1,2}|cp\d{3,4}|koi8-[ru]|mac-\w+|shift_jis\w*"
    r"|euc_\w+|iso2022_\w+|gb2312|gbk|gb18030|big5\w*|hz|johab|tis-620"
)
"""The names that Python gives to charsets. It has codecs that are something else, and some take forever."""
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_MARK_CHARS = 16
_URL_CHARS = 500


class Web(msgspec.Struct, frozen=True):
    """How the web tools of a runtime reach the network."""

    lookup: Lookup | None = None
    """Resolves names; None: this machine's resolver."""
    keys: Mapping[str, str] = {}
    """The environment, in which the keys of search engines are."""
    now_ms: Callable[[], int] = SYSTEM_CLOCK.uptime_ms
    credentials: Credentials | None = None
    """The stored secrets that requests may have; None: none."""

    def key_of(self, variable: str) -> str:
        """Return the key in a variable; empty if there is no key."""
        return self.keys.get(variable, "").strip()

    async def exchange(
        self,
        request: Request,
        context: CallContext,
        wants: Callable[[Response], bool],
        allowed: Sequence[str] | None = None,
        limit_s: float = TIMEOUT_S,
    ) -> Response | RawResult:
        """Return the response to a request, or a result that says why nothing came.

        Args:
            request: What to send.
            context: Of the call.
            wants: Whether the body of a response is read.
            allowed: The hosts that the call may reach; None: those of the run.
            limit_s: The longest that it takes, with all redirects.

        Raises:
            Lapsed: the lease is over, and nothing was sent after that.
        """
        from holdfast.tools.egress import NoResponse, Reach, exchange

        hosts = context.policy.allowed_hosts if allowed is None else allowed
        secret_hosts = () if self.credentials is None else self.credentials.hosts
        limit_s = min(limit_s, context.timeout_s, context.idle_s)
        try:
            async with asyncio.timeout(limit_s):
                lookup = self.lookup or system_lookup
                return await exchange(request, Reach(hosts, context.check, lookup, secret_hosts), wants)
        except NoResponse as error:
            return RawResult("error", str(error), error.detail)
        except TimeoutError:
            return RawResult("timeout", f"There was no whole response within {limit_s:g} s.")


def is_text(response: Response) -> bool:
    """Return whether the body is text, by its type. A body without a type is looked at when it is there."""
    return not response.mime or _TEXT.fullmatch(response.mime) is not None


def host_of(response: Response) -> str:
    """Return the host that a response came from, with its port if it is not the usual one."""
    return urlsplit(response.url).netloc.lower()


def unreadable(response: Response) -> str:
    """Return why the body cannot be shown, as a sentence; empty if it can be."""
    if not is_text(response):
        return f"It is {plain_type(response)}, and only text can be read."
    if b"\0" in response.body[:8192] and not charset_of(response).startswith(("utf-16", "utf-32")):
        return "It is binary, and only text can be read."
    return ""


def plain_type(response: Response) -> str:
    """Return the type in a form that is safe to show."""
    shown = re.fullmatch(r"[\w.+-]{1,80}/[\w.+-]{1,80}", response.mime, re.ASCII)
    return response.mime if shown else "of no known type"


def charset_of(response: Response) -> str:
    """Return the charset that the body or the header names, as Python calls it; empty if it is not known."""
    bom = next((name for mark, name in _BOMS if response.body.startswith(mark)), "")
    said = _CHARSET.search(response.headers.get("content-type", ""))
    if bom or said is None:
        return bom
    try:
        name = codecs.lookup(said[1]).name
    except LookupError:
        return ""
    return name if _CHARSETS.fullmatch(name) else ""


def text_of(response: Response) -> str:
    """Return the body as text."""
    return response.body.decode(charset_of(response) or "utf-8", "replace")


def redactor_of(context: CallContext, *known: str) -> Redactor:
    """Return what masks the texts of a call. A tool that cuts a text masks it before: later, nothing finds a part of
    a value.

    Args:
        context: Of the call.
        known: Values of the call itself.
    """
    try:
        redact = context.get(Redactor)
    except LookupError:
        redact = make_redactor()
    return redact.also(known) if known else redact


def without_cut_value(text: str, redact: Redactor) -> str:
    """Return a text that was cut off, masked, and without its last characters: they may be a part of a value."""
    masked = redact(text)
    return masked[: max(len(masked) - redact.longest_known, 0)]


def head_of(method: str, response: Response, redact: Redactor) -> str:
    """Return one line about a response, in Holdfast's words."""
    try:
        phrase = f" {HTTPStatus(response.status).phrase}"
    except ValueError:
        phrase = ""
    what = f"{plain_type(response)}, " if response.mime else ""
    cut = ", only the beginning of a longer body" if response.is_cut else ""
    url = response.url
    if len(url) > _URL_CHARS:
        url = f"{redact(url)[:_URL_CHARS]}..."
    return f"[{method} {url}: {response.status}{phrase}, {what}{counted(len(response.body), 'byte')}{cut}]"


def marked(what: str, text: str) -> str:
    """Return a stranger's text between two marks."""
    text = visible(text).strip("\n")
    mark = hashlib.sha256(text.encode()).hexdigest()[:_MARK_CHARS]
    return (
        f"[{what}, mark {mark}: what follows was written by a stranger]\n{text}\n[end of {what}, mark {mark}]"
    )


def visible(text: str) -> str:
    """Return the text without characters that people do not see: control and format characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    hidden = {each for each in set(text) if each not in "\n\t" and unicodedata.category(each) in _UNSEEN}
    return re.sub(f"[{re.escape(''.join(hidden))}]+", "", text) if hidden else text


_UNSEEN = ("Cc", "Cf", "Cs", "Co")
