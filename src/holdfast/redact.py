"""Masks secrets in text with `[redacted:KIND]`, before it is stored, logged or shown.

Three grounds for suspicion: values that are known to be secret (also in their common encodings), shapes that
only a credential has, and values that stand where a secret stands (`password = ...`, an Authorization header,
the user part of a URL). Hashes, UUIDs and base64 alone are no secrets; placeholders and code that merely
names a secret are left alone. A card number needs the issuer's prefix, the length and the check digit: one
random number in ten with such a prefix has them too, and is masked.

Where masking takes place, and what may be done with a text that holds a secret, is not decided here.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote

KNOWN_SECRET_MIN_CHARS = 8
"""A shorter value is too likely to be a word."""

STREAM_HOLD_MAX_CHARS = 65_536
"""The most that a stream holds back for what may become a secret."""

_STREAM_CONTEXT_CHARS = 200
_PASSES_MAX = 8
"""Masking one secret may bare the beginning of the next, where two stand without anything between."""


class Span(NamedTuple):
    """A stretch of text that is secret."""

    start: int
    end: int
    kind: str


class Redactor:
    """Masks the secrets of a text. Called on its own output it changes nothing more."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        values = {value for value in known if len(value) >= KNOWN_SECRET_MIN_CHARS}
        forms = {form for value in values for form in _forms(value)}
        self._needles = tuple(sorted(forms, key=len, reverse=True))

    @property
    def longest_known(self) -> int:
        """The length of the longest form of a known secret, in characters."""
        return len(self._needles[0]) if self._needles else 0

    def has_known_secret(self, text: str) -> bool:
        """Whether a known secret stands in the text, plain or in a common encoding."""
        return any(needle in text for needle in self._needles)

    def find(self, text: str) -> list[Span]:
        """The secret stretches in order, none overlapping another."""
        found: list[Span] = []
        for needle in self._needles:
            found += [Span(at, at + len(needle), "known") for at in _places(text, needle)]
        found += _find_shapes(text)
        found += _find_private_keys(text)
        found += _find_assigned(text)
        found += _find_credentials(text)
        found.sort(key=lambda span: (span.start, -span.end))
        apart: list[Span] = []
        for span in found:
            if apart and span.start < apart[-1].end:
                apart[-1] = apart[-1]._replace(end=max(apart[-1].end, span.end))
            else:
                apart.append(span)
        return apart

    def __call__(self, text: str) -> str:
        for _ in range(_PASSES_MAX):
            spans = self.find(text)
            if not spans:
                break
            text = _mask(text, spans)
        return text


def make_redactor(known: Iterable[str] = ()) -> Redactor:
    """A redactor that also knows these secret values, of 8 characters or more; shorter ones are ignored."""
    return Redactor(known)


class StreamRedactor:
    """Redacts text that arrives in pieces, holding back what may be the beginning of a secret.

    What all `feed`s and the final `flush` give holds no known secret, wherever the pieces were cut.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._hold = max(redactor.longest_known - 1, 0)
        self._context = ""
        self._pending = ""

    def feed(self, piece: str) -> str:
        """What can be shown now: whole words; the empty string when all of it is held back."""
        self._pending += piece
        free = max(len(self._pending) - self._hold, 0)
        if len(self._pending) > STREAM_HOLD_MAX_CHARS:
            return self._show(free, is_growing=False)
        return self._show(max(self._pending.rfind(blank, 0, free) for blank in " \n") + 1, is_growing=True)

    def flush(self) -> str:
        """The rest."""
        return self._show(len(self._pending), is_growing=False)

    def _show(self, upto: int, *, is_growing: bool) -> str:
        if not upto:
            return ""
        raw, begin = self._context + self._pending, len(self._context)
        end = begin + upto
        spans = self._redactor.find(raw)
        for span in spans:
            if span.start < end < span.end or (is_growing and span.start < end and span.end == len(raw)):
                end = max(span.start, begin) if is_growing else span.end
        shown = [span._replace(start=max(span.start, begin)) for span in spans if begin < span.end <= end]
        text = _mask(raw[:end], shown)[begin:]
        self._context = raw[max(end - max(_STREAM_CONTEXT_CHARS, self._hold), 0) : end]
        self._pending = raw[end:]
        return text


def _mask(text: str, spans: list[Span]) -> str:
    if not spans:
        return text
    pieces, at = [], 0
    for span in spans:
        pieces += [text[at : span.start], f"[redacted:{span.kind}]"]
        at = span.end
    return "".join(pieces) + text[at:]


def _forms(value: str) -> Iterator[str]:
    """The value plain, JSON-escaped, URL-encoded, in hex, and inside base64 at each of three alignments."""
    raw = value.encode("utf-8", "surrogatepass")
    forms = [value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], raw.hex()]
    forms += [quote(raw), quote(raw, safe="")]
    for shift in range(3):
        plain = base64.b64encode(bytes(shift) + raw).decode("ascii")
        core = plain[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]
        forms += [core, core.replace("+", "-").replace("/", "_")]
    yield from (form for form in forms if len(form) >= KNOWN_SECRET_MIN_CHARS)


def _places(text: str, needle: str) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


# --- shapes -------------------------------------------------------------------------------------


class _Shape(NamedTuple):
    """How one vendor's credentials look; what is secret is the whole match, or its group `s`."""

    kind: str
    beginnings: tuple[str, ...]
    """The pattern is tried only where one of these stands at the start of a word."""
    pattern: re.Pattern[str]


def _shape(kind: str, beginnings: str, pattern: str) -> _Shape:
    return _Shape(kind, tuple(beginnings.split()), re.compile(pattern))


_SHAPES = (
    _shape("anthropic", "sk-ant-", r"sk-ant-[a-z]{3,8}\d\d-[\w-]{80,200}AA(?![\w-])"),
    _shape("openai", "sk-", r"sk-(?:(?:proj|svcacct|admin)-[\w-]{80,}|[A-Za-z0-9]{32,})(?![\w-])"),
    _shape("openrouter", "sk-or-v1-", r"sk-or-v1-[a-f0-9]{64}"),
    _shape("groq", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _shape("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{40,}"),
    _shape("xai", "xai-", r"xai-[A-Za-z0-9]{60,}"),
    _shape("replicate", "r8_", r"r8_[A-Za-z0-9]{37}"),
    _shape("huggingface", "hf_ api_org_", r"[a-z_]+_(?=[a-z]*[A-Z])(?=[A-Z]*[a-z])[A-Za-z]{34}(?!\w)"),
    _shape("github", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,}"),
    _shape("github", "github_pat_", r"github_pat_\w{60,}"),
    _shape("gitlab", "gl", r"gl(?:pat|dt|rt|ft|soat|cbt|ffct|wt)-[\w-]{20,}(?:\.[\w-]{9,})?"),
    _shape("gitlab", "gl", r"gl(?:ptt-[\w-]{40}|imt-[\w-]{25}|agent-[\w-]{50,99}|oas-[\w-]{64})(?![\w-])"),
    _shape("gitlab", "GR1348941", r"GR1348941[\w-]{20}"),
    _shape("slack", "xox", r"xox[abopsr]-(?:\d-)?(?:\d{6,}-)+[A-Za-z0-9]{10,}(?![\w-])"),
    _shape("slack", "xoxe", r"xoxe(?:\.xox[bp])?-\d-[A-Za-z0-9]{100,}"),
    _shape("slack", "xapp-", r"xapp-\d-[A-Z0-9]+-\d+-[a-f0-9]{16,}"),
    _shape("slack", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows)/(?P<s>[\w/+-]{43,56})"),
    _shape("teams", "webhook.office.com/", r"webhook\.office\.com/webhookb2/(?P<s>[\w@./-]{60,})"),
    _shape("discord", "discord", r"discord(?:app)?\.com/api/webhooks/(?P<s>\d{17,20}/[\w-]{60,})"),
    _shape("stripe", "sk_ rk_", r"[rs]k_(?:live|test|prod)_[A-Za-z0-9]{12,}"),
    _shape("stripe", "whsec_", r"whsec_[A-Za-z0-9+/]{24,}={0,2}"),
    _shape("square", "sq0 EAAA", r"(?:EAAA[\w+-]{40,60}|sq0[a-z]{3}-[\w-]{22,43}(?:\\\w+)?)(?![\w+-])"),
    _shape("shopify", "shp", r"shp(?:ss|at|ca|pa)_[a-fA-F0-9]{32}"),
    _shape("google", "AIza", r"AIza[\w-]{35}(?![\w-])"),
    _shape("google", "GOCSPX- ya29.", r"GOCSPX-[\w-]{28}|ya29\.[\w-]{30,}"),
    _shape("aws", "AKIA ASIA ABIA ACCA A3T", r"(?:A3T[A-Z0-9]|A[A-Z]{3})[A-Z0-9]{16}(?!\w)"),
    _shape("aws", "ABSK", r"ABSK[A-Za-z0-9+/]{109,269}={0,2}(?![A-Za-z0-9+/=])"),
    _shape("aws", "bedrock-api-key-", r"bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29[t][\w+/=]*"),
    _shape("azure", "AccountKey= SharedAccessKey=", r"\w+Key=(?P<s>[A-Za-z0-9+/]{40,}={0,2})"),
    _shape("digitalocean", "doo_v1_ dop_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _shape("databricks", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])"),
    _shape("npm", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _shape(
        "npm",
        "//",
        r"//[^\s/]{1,256}/[^\s:]{0,256}:_(?:authToken|password|auth)\s?=\s?(?P<s>[\w+/=.-]{10,})",
    ),
    _shape("pypi", "pypi-", r"pypi-[A-Za-z0-9_-]{60,}"),
    _shape("rubygems", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    _shape("sendgrid", "SG.", r"SG\.[\w-]{16,}\.[\w-]{32,}"),
    _shape("twilio", "SK AC", r"(?:SK|AC)[0-9a-f]{32}(?!\w)"),
    _shape("mailgun", "key- pubkey-", r"(?:pub)?key-[0-9a-f]{32}(?!\w)"),
    _shape("facebook", "EAAM EAAC", r"EAA[MC](?=[A-Za-z]*\d)[A-Za-z0-9]{100,}"),
    _shape("atlassian", "ATATT3 ATCTT3", r"AT[AC]TT3[\w+/=-]{60,}"),
    _shape("1password", "ops_eyJ", r"ops_eyJ[A-Za-z0-9+/_-]{200,}={0,3}"),
    _shape("1password", "A3-", r"A3-[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}(?:-[A-Z0-9]{5}){3}(?!\w)"),
    _shape("age", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _shape("vault", "hvs. hvb.", r"hv[sb]\.[\w-]{90,}"),
    _shape("vault", "s.", r"s\.(?=[A-Za-z]*\d)(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])[A-Za-z0-9]{24}(?!\w)"),
    _shape("grafana", "glsa_", r"glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}"),
    _shape("grafana", "glc_", r"glc_(?=\w*\d)[A-Za-z0-9+/]{32,}={0,2}"),
    _shape("grafana", "eyJrIjoi", r"eyJrIjoi[A-Za-z0-9]{70,}={0,3}"),
    _shape("linear", "lin_api_", r"lin_api_[A-Za-z0-9]{40}"),
    _shape("notion", "ntn_ secret_", r"(?:ntn_\d{11}|secret_)[A-Za-z0-9]{35,43}(?!\w)"),
    _shape("postman", "PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    _shape("newrelic", "NRAK- NRJS- NRII-", r"NR(?:AK|JS|II)-[A-Za-z0-9-]{19,32}"),
    _shape("sentry", "sntrys_ sntryu_", r"sntry[su]_[\w+/=-]{60,}"),
    _shape("openshift", "sha256~", r"sha256~[\w-]{43}(?![\w-])"),
    _shape("sourcegraph", "sgp_", r"sgp_(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40}(?!\w)"),
    _shape("intra42", "s-s4t2", r"s-s4t2(?:ud|af)-[a-f0-9]{64}"),
    _shape("heroku", "HRKU-", r"HRKU-AA[\w-]{58}"),
    _shape("fly", "fo1_ fm1 fm2", r"fo1_[\w-]{43}|fm[12][a-z]?_[A-Za-z0-9+/]{100,}={0,3}"),
    _shape("doppler", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[a-zA-Z0-9]{40,}"),
    _shape("dynatrace", "dt0c01.", r"dt0c01\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"),
    _shape("octopus", "API-", r"API-[A-Z0-9]{26}(?!\w)"),
    _shape("jwt", "ey", r"ey[A-Za-z0-9]{15,}\.ey[\w/\\+-]{15,}(?:\.[\w/\\+-]{10,}={0,2}|(?![\w/\\.+-]))"),
)

_INNER_SHAPES = (
    ("openai", "T3BlbkFJ", re.compile(r"\bsk-[\w-]{20,200}T3BlbkFJ[\w-]{20,}")),
    ("azure", "Q~", re.compile(r"(?<![\w~.-])[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![\w~.-])")),
    ("discord", ".", re.compile(r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,38}(?![\w-])")),
    ("telegram", ":AA", re.compile(r"\b\d{8,10}:AA[\w-]{33}(?![\w-])")),
    ("mailchimp", "-us", re.compile(r"\b[0-9a-f]{32}-us\d{1,2}\b")),
    ("facebook", "|", re.compile(r"\b\d{15,16}\|[\w-]{27,40}(?![\w-])")),
    ("hashicorp", ".atlasv1.", re.compile(r"\b[a-zA-Z0-9]{14}\.atlasv1\.[\w=-]{60,70}")),
)
"""Shapes known by what stands in their middle: kind, that middle, pattern."""

_SHAPE_MIN_CHARS = 20
_PEM_BEGIN = re.compile(r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(r"(?:(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]{16,})*(?:(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]*\Z)?")
_PEM_BODY_MIN_CHARS = 24


def _find_shapes(text: str) -> Iterator[Span]:
    # Every shape is one long word: the many look-ups are spent on those, which ordinary text has few of.
    long_words = " ".join([word for word in text.split() if len(word) >= _SHAPE_MIN_CHARS])
    if not long_words:
        return
    for shape in _SHAPES:
        for beginning in shape.beginnings:
            if beginning in long_words:
                yield from _find_words(text, beginning, shape)
    for kind, middle, pattern in _INNER_SHAPES:
        if middle in long_words and pattern.search(long_words):
            yield from (Span(*match.span(), kind) for match in pattern.finditer(text))


def _find_words(text: str, beginning: str, shape: _Shape) -> Iterator[Span]:
    group = "s" if "s" in shape.pattern.groupindex else 0
    at = text.find(beginning)
    while at >= 0:
        end = at + 1
        is_start = not at or not (text[at - 1].isalnum() or text[at - 1] == "_")
        if is_start and (match := shape.pattern.match(text, at)):
            end = match.end()
            if not _is_specimen(match[group]):
                yield Span(*match.span(group), shape.kind)
        at = text.find(beginning, end)


def _is_specimen(value: str) -> bool:
    """Whether the shape is there only to show the shape."""
    lowered = value.lower()
    return "xxxx" in lowered or lowered.endswith("example") or "..." in value


def _find_private_keys(text: str) -> Iterator[Span]:
    """The blocks of private keys, each up to its end, or to the end of the text when it was cut off."""
    if "PRIVATE KEY" not in text:
        return
    begin, end = _PEM_BEGIN.search(text), _PEM_END.search(text)
    while begin:
        if end and end.start() < begin.end():
            end = _PEM_END.search(text, begin.end())
        body = _PEM_BODY.match(text, begin.end())
        body_end = body.end() if body else begin.end()
        if end and end.start() - begin.end() >= _PEM_BODY_MIN_CHARS:
            yield Span(begin.start(), end.end(), "private-key")
        elif not end and (body_end - begin.end() >= _PEM_BODY_MIN_CHARS or body_end == len(text)):
            yield Span(begin.start(), body_end, "private-key")
        begin = _PEM_BEGIN.search(text, end.end() if end else body_end)


# --- values in a secret's place -----------------------------------------------------------------

_PASSWORD_NAMES = ("passw", "passphrase", "pwd", "_pass", "_pw")
_SECRET_NAMES = ("token", "secret", "credential", "key")
_KEY_OWNERS = tuple(
    owner + dash
    for owner in ("api", "access", "auth", "account", "private", "signing", "encryption", "license", "secret")
    for dash in ("", "_", "-")
)
"""`key` alone names no secret; behind one of these it does."""

_NAME_REST = re.compile(r"[A-Za-z0-9_.-]{0,40}")
_HARMLESS_NAME = re.compile(
    r"(?i)s(?![a-z])|.{0,30}?(?:hash|digest|count|limit|type|name|url|uri|file|path|expir|length|usage|budget|ttl"
    r"|policy|field|prompt|label|hint|regex|pattern|manager|error|required|_at\b|_?id\b|_?ids\b|_?env\b)"
)
_VALUE = re.compile(
    r"""\\?["'`]?[\])]{0,2}[ \t]{0,8}                      # the end of the name, maybe quoted
    (?:                                                  # what stands between a name and its value
        (?: :[ ]?[A-Za-z]{1,20}[ ]?= | \|\|?= | [:=!]?==? | => | -> | <- | : ) [ \t]{0,8}
      | [ \t](?P<spoken>is|was)[ \t]{1,4}
      | (?P<option>[ \t])
    )
    (?:[uUrbf@$](?=["']))?
    (?: \\?(?P<mark>["'`])(?P<quoted>(?:(?!\\?(?P=mark))[^\n]){1,512})\\?(?P=mark)
      | (?P<bare>[^\s"'`,;&<>|]{1,64}) )""",
    re.VERBOSE,
)
_VALUE_REST = re.compile(r"""[^\s"'`,;&<>|]*""")
_PLACEHOLDER = re.compile(
    r"""(?ix)
    <.*>? | \[.*\]? | \{.*\}? | \$.* | %.* | \(.*
  | [x*.\#_•-]{3,} | .*x{4,}.* | .*\*{3,}.* | .*\.\.\.? | (.)\1{5,} | (?-i:.*EXAMPLE.*)
  | .*(?<![a-z0-9])(?:your|change[_-]?me|placeholder|redacted|example|dummy|fake|goes[_-]?here).*
  | .*(?<![a-z0-9])(?:insert|replace|enter)[_-].*
  | .*\$\{\w*\}.* | .*\{\{[^{}]*\}\}.* | .*\$\(.*
  | (?:none|null|nil|true|false|yes|no|undefined|empty|string|str|bytes|int|text|any|optional|required
     |secret|token|password|passwd|bearer|basic|hidden|masked|unknown|missing|invalid|default|test|self|this
     |async|await|function|env|prompt)\W*
    """
)
_ADDRESS = re.compile(r"(?:[a-z]+:)?//.*|[./~]+/.*|/[a-z]+/.*|[\W_]+")
_CODE = re.compile(
    r"""(?x)
    .*\w\(.*                                            # a call
  | [A-Za-z_]\w*(?:(?:\.|->|::|\?\.)[A-Za-z_]\w*)+[\[\](){}.,;:]*   # an attribute
  | [A-Za-z_]\w*\[.*                                    # an index
    """
)
_PLACEHOLDER_MAX_CHARS = 64
_WORDS_ONLY = re.compile(r"[A-Za-z_-]+[.,;:!?)]*")
_TOKEN_MIN_CHARS = 10
_PASSWORD_MIN_CHARS = 4
_DIGITS_ONLY_MIN_CHARS = 16


def _find_assigned(text: str) -> Iterator[Span]:
    """Values of variables, fields, options and sentences whose name is a secret's."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that grows when it is lowered would shift all that follows
        lowered = text.translate(_ASCII_LOWER)
    for names, kind, is_real in (
        (_PASSWORD_NAMES, "password", _is_password),
        (_SECRET_NAMES, "secret", _is_secret),
    ):
        for name in names:
            done = 0
            for at in _places(lowered, name):
                if at < done or (name == "key" and not lowered.endswith(_KEY_OWNERS, max(at - 12, 0), at)):
                    continue
                span = _assigned(text, at, at + len(name), kind, is_real)
                if span:
                    done = span.end
                    yield span


_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _assigned(
    text: str, start: int, name_end: int, kind: str, is_real: Callable[[str, re.Match[str]], bool]
) -> Span | None:
    """The value that follows the name, when it is a real one."""
    rest = _NAME_REST.match(text, name_end)
    if rest is None or _HARMLESS_NAME.match(rest[0]) or _is_marker(text, start):
        return None
    match = _VALUE.match(text, rest.end())
    if match is None:
        return None
    if match["option"] and not _is_option(text, start):
        return None
    # npm reads `_authToken` only behind a registry's address; that form is a shape of its own.
    if text.endswith("_authToken", 0, name_end):
        return None
    group = "quoted" if match["quoted"] else "bare"
    value = match[group]
    if not is_real(value, match) or _ADDRESS.fullmatch(value) or _is_placeholder(value):
        return None
    end = match.end("quoted")
    if group == "bare" and (whole := _VALUE_REST.match(text, match.end("bare"))):
        end = whole.end()
    return Span(match.start(group), end, kind)


def _is_marker(text: str, at: int) -> bool:
    """Whether the name stands in a mark that an earlier redaction left."""
    mark = text.rfind("[redacted:", max(at - 30, 0), at)
    return mark >= 0 and "]" not in text[mark:at]


def _is_option(text: str, at: int) -> bool:
    """Whether the name belongs to a command-line option, whose value follows after a blank."""
    begin = max(at - 40, 0)
    word = text[max(text.rfind(" ", begin, at), text.rfind("\n", begin, at)) + 1 : at]
    return word.startswith("-")


def _is_placeholder(value: str) -> bool:
    """Whether the value only says that a value belongs here; that is never long."""
    return _PLACEHOLDER.fullmatch(value[:_PLACEHOLDER_MAX_CHARS]) is not None


def _is_password(value: str, match: re.Match[str]) -> bool:
    if len(value) < _PASSWORD_MIN_CHARS:
        return False
    if match["quoted"]:
        return not (" " in value and value.replace(" ", "").isalpha())
    if _CODE.fullmatch(value):
        return False
    if match["spoken"] or match["option"]:
        return any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    # `password: required` is prose and `password = given` is code; `password=letmein` is neither.
    return not _WORDS_ONLY.fullmatch(value) or ("=" in match[0] and " " not in match[0])


def _is_secret(value: str, match: re.Match[str]) -> bool:
    if len(value) < _TOKEN_MIN_CHARS or " " in value:
        return False
    if value.isdigit():
        return len(value) >= _DIGITS_ONLY_MIN_CHARS
    if not any(map(str.isdigit, value)) or len(set(value)) < 5:
        return False
    return not (match["bare"] and _CODE.fullmatch(value))


# --- credentials by their place in a protocol -----------------------------------------------------

_AUTHORIZATION = re.compile(
    r"""(?ix) authorization \\?["']? \s{0,4} [:=,] \s{0,4} \\?["']?
    (?:(?:bearer|basic|token|apikey|digest|aws4-hmac-sha256)\s{1,4})? (?P<s>[^\s"'\\,<>]{6,})"""
)
_BEARER = re.compile(r"\b[Bb](?:earer|EARER)\s{1,4}(?P<s>[\w.~+/=-]{16,})")
_API_HEADER = re.compile(
    r"""(?i)x-[a-z-]{0,30}(?:key|token|auth)\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?P<s>[^\s"'\\,<>]{8,})"""
)
_URL_USER = re.compile(r"(?<=://)[^\s/?#:@\"'<>]{0,256}:(?P<s>[^\s/?#@\"'<>]{3,512})@(?=[\w\[])")
_CURL_USER = re.compile(
    r"""(?<=\s)(?:-u|--user|--proxy-user)(?:[ \t]{1,4}|=)?
    (?P<s>(?=[^\s]*:)(?:"[^"\n]{0,256}"|'[^'\n]{0,256}'|[^\s"'])+)""",
    re.VERBOSE,
)
_INTERPOLATED = re.compile(r"(?i)\$[a-z0-9_{(]|[<{%\[]|x{3,}|\*{3,}|\.\.\.")
_CARD = re.compile(r"[2-6]\d{3}(?:[ -]?\d){8,15}(?![\w-]|\.\d)")
_CARD_NUMBER = re.compile(r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]|2[2-7]|35|6[045])\d{14}|3[47]\d{13}|3[068]\d{12}")


def _find_credentials(text: str) -> Iterator[Span]:
    """Headers, users in URLs and on command lines, card numbers."""
    for hints, pattern, kind, is_real in _PLACES:
        if any(hint in text for hint in hints):
            for match in pattern.finditer(text):
                if is_real(match["s"]):
                    yield Span(*match.span("s"), kind)
    for match in _CARD.finditer(text):
        before = text[match.start() - 1 : match.start()]
        if not (before.isalnum() or before in ("_", ".", "+", "-")) and _is_card(match[0]):
            yield Span(*match.span(), "card")


def _is_header_value(value: str) -> bool:
    return not _is_placeholder(value)


def _is_user_password(value: str) -> bool:
    """Whether `user:password`, or a password alone, holds one; the word `password` may well be one."""
    user, _, password = value.replace('"', "").replace("'", "").partition(":")
    word = password or user
    is_interpolated = _INTERPOLATED.match(word) or _INTERPOLATED.match(user)
    return not is_interpolated and any(map(str.isalnum, word))


def _is_card(text: str) -> bool:
    digits = [int(character) for character in text if character.isdigit()]
    if not _CARD_NUMBER.fullmatch("".join(map(str, digits))) or len(set(digits)) < 2:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


_PLACES: tuple[tuple[tuple[str, ...], re.Pattern[str], str, Callable[[str], bool]], ...] = (
    (("uthorization", "UTHORIZATION"), _AUTHORIZATION, "authorization", _is_header_value),
    (("earer ", "EARER "), _BEARER, "authorization", _is_header_value),
    (("-key", "-Key", "-token", "-Token", "-auth", "-Auth"), _API_HEADER, "authorization", _is_header_value),
    (("://",), _URL_USER, "url-credentials", _is_user_password),
    (("curl",), _CURL_USER, "password", _is_user_password),
)
