"""Finds shapes that only a credential has: the tokens of each vendor, and blocks of private keys.

A token is recognised by its vendor's whole form, or by a beginning that nothing else has. Then its length does not
matter, and invented samples stay. `assigned` and `credentials` look at the place and the name of a value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from holdfast.redact.gates import widened
from holdfast.redact.likeness import is_drawn, is_specimen
from holdfast.redact.spans import Span


class _Shape(NamedTuple):
    """The shape of one vendor's credentials. The secret is the whole match, or its group `s`."""

    kind: str
    beginnings: tuple[str, ...]
    """The pattern is tried only if a word starts with one of these."""
    pattern: str
    """Compiled when a beginning is found: seventy patterns that no text needs would take time."""
    sign: str
    """What the gate looks for instead of the pattern, if the pattern begins with what every text has."""
    is_whole: bool
    """The pattern asks for the whole form. Otherwise, what follows the beginning must look random."""


def _shape(kind: str, beginnings: str, pattern: str, sign: str = "") -> _Shape:
    return _Shape(kind, tuple(beginnings.split()), pattern, sign, is_whole=True)


BODY_MIN_CHARS = 20
"""The least length of what follows a key's beginning. Today's keys are longer."""


def _begun(kind: str, beginnings: str, characters: str = r"[A-Za-z0-9]", most: str = "") -> _Shape:
    """Return keys of any length by their beginnings, up to a length if longer words are common."""
    names = tuple(beginnings.split())
    end = f"(?!{characters})" if most else ""
    pattern = f"(?:{'|'.join(map(re.escape, names))})(?P<body>{characters}{{{BODY_MIN_CHARS},{most}}}){end}"
    return _Shape(kind, names, pattern, "", is_whole=False)


_WORD, _HEX, _CAPITALS = r"[\w-]", "[a-fA-F0-9]", "[A-Z0-9]"


_SHAPES = (
    _shape("anthropic", "sk-ant-", r"sk-ant-[a-z]{3,8}\d\d-[\w-]{80,200}AA(?![\w-])"),
    _shape("openai", "sk-", r"sk-(?:(?:proj|svcacct|admin)-[\w-]{80,}|[A-Za-z0-9]{32,})(?![\w-])"),
    _shape("openrouter", "sk-or-v1-", r"sk-or-v1-[a-f0-9]{64}"),
    _shape("groq", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _shape("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{40,}"),
    _shape("xai", "xai-", r"xai-[A-Za-z0-9]{60,}"),
    _shape("replicate", "r8_", r"r8_[A-Za-z0-9]{37}"),
    _shape(
        "huggingface",
        "hf_ api_org_",
        r"(?:hf|api_org)[a-z_]*_(?=[a-z]*[A-Z])(?=[A-Z]*[a-z])[A-Za-z]{34}(?!\w)",
    ),
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
    _shape(
        "azure",
        "AccountKey= SharedAccessKey=",
        r"(?:Account|SharedAccess)Key=(?P<s>[A-Za-z0-9+/]{40,}={0,2})",
    ),
    _shape("digitalocean", "doo_v1_ dop_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _shape("databricks", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])"),
    _shape("npm", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _shape(
        "npm",
        "//",
        r"//[^\s/]{1,256}/[^\s:]{0,256}:_(?:authToken|password|auth)\s?=\s?(?P<s>[\w+/=.-]{10,})",
        sign=r":_(?:authToken|password|auth)",
    ),
    _shape("pypi", "pypi-", r"pypi-[A-Za-z0-9_-]{60,}"),
    _shape("rubygems", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    _shape("sendgrid", "SG.", r"SG\.[\w-]{16,}\.[\w-]{32,}"),
    _shape("twilio", "SK AC", r"(?:SK|AC)[0-9a-f]{32}(?!\w)"),
    _shape("mailgun", "key- pubkey-", r"(?:pub)?key-[0-9a-f]{32}(?!\w)"),
    _shape("facebook", "EAAM EAAC", r"EAA[MC](?=[A-Za-z]*\d)[A-Za-z0-9]{60,}"),
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
    _shape("openshift", "sha256~", r"sha256~(?=[\w-]*[A-Z])[\w-]{32,}"),
    _shape("sourcegraph", "sgp_", r"sgp_(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40}(?!\w)"),
    _shape("intra42", "s-s4t2", r"s-s4t2(?:ud|af)-[a-f0-9]{64}"),
    _shape("heroku", "HRKU-", r"HRKU-AA[\w-]{58}"),
    _shape(
        "softlayer", "api.softlayer.com/", r"api\.softlayer\.com/soap/v3(?:\.1)?/(?P<s>[a-z0-9]{64})(?!\w)"
    ),
    _shape("artifactory", "AKCp", r"AKCp\d[A-Za-z0-9]{60,}"),
    _shape("fly", "fo1_ fm1 fm2", r"fo1_[\w-]{43}|fm[12][a-z]?_[A-Za-z0-9+/]{100,}={0,3}"),
    _shape("doppler", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[a-zA-Z0-9]{40,}"),
    _shape("dynatrace", "dt0c01.", r"dt0c01\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"),
    _shape("octopus", "API-", r"API-[A-Z0-9]{26}(?!\w)"),
    _shape("jwt", "ey", r"ey[A-Za-z0-9]{15,}\.ey[\w/\\+-]{15,}(?:\.[\w/\\+-]{10,}={0,2}|(?![\w/\\.+-]))"),
)


_BEGUN = (
    _begun("anthropic", "sk-ant-", _WORD),
    _begun("openai", "sk-proj- sk-svcacct- sk-admin- sk-None-", _WORD),
    _begun("openai", "sk-"),
    _begun("openrouter", "sk-or-v1- sk-or-", _WORD),
    _begun("groq", "gsk_"),
    _begun("perplexity", "pplx-"),
    _begun("xai", "xai-"),
    _begun("replicate", "r8_"),
    _begun("huggingface", "hf_ api_org_"),
    _begun("cerebras", "csk-"),
    _begun("nvidia", "nvapi-", _WORD),
    _begun("tavily", "tvly-", _WORD),
    _begun("langsmith", "lsv2_pt_ lsv2_sk_", r"\w"),
    _begun("github", "ghp_ gho_ ghu_ ghs_ ghr_"),
    _begun("github", "github_pat_", r"\w"),
    _begun("gitlab", "glptt- glimt- glagent- gloas- glrtr-", _WORD),
    _begun("slack", "xoxe.xoxb-1- xoxe.xoxp-1- xoxe-1-", _WORD),
    _begun("stripe", "whsec_", "[A-Za-z0-9+/]"),
    _begun("square", "sq0atp- sq0csp-", _WORD),
    _begun("shopify", "shpss_ shpat_ shpca_ shppa_", _HEX),
    _begun("google", "GOCSPX- ya29.", _WORD),
    _begun("google", "AIza", _WORD, most="40"),
    _begun("aws", "AKIA ABIA ACCA", _CAPITALS),
    _begun("aws", "ABSKQm", "[A-Za-z0-9+/]"),
    _begun("digitalocean", "doo_v1_ dop_v1_ dor_v1_", _HEX),
    _begun("databricks", "dapi", _HEX),
    _begun("npm", "npm_"),
    _begun("pypi", "pypi-", _WORD),
    _begun("rubygems", "rubygems_", _HEX),
    _begun("docker", "dckr_pat_ dckr_oat_", _WORD),
    _begun("atlassian", "ATATT3 ATCTT3", r"[\w+/=-]"),
    _begun("1password", "ops_eyJ", "[A-Za-z0-9+/_-]"),
    _begun("age", "AGE-SECRET-KEY-1", _CAPITALS),
    _begun("vault", "hvs. hvb.", _WORD),
    _begun("grafana", "glsa_ glc_ eyJrIjoi", r"[\w+/]"),
    _begun("linear", "lin_api_ lin_oauth_"),
    _begun("notion", "ntn_"),
    _begun("postman", "PMAK-", "[a-f0-9-]"),
    _begun("newrelic", "NRAK- NRJS- NRII-", r"[A-Za-z0-9-]"),
    _begun("sentry", "sntrys_ sntryu_", r"[\w+/=-]"),
    _begun("sourcegraph", "sgp_", _HEX),
    _begun("intra42", "s-s4t2ud- s-s4t2af-", _HEX),
    _begun("heroku", "HRKU-", _WORD),
    _begun("fly", "fo1_ fm1_ fm2_ fm1r_ fm1a_", "[A-Za-z0-9+/_-]"),
    _begun("doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit."),
    _begun("dynatrace", "dt0c01.", "[A-Za-z0-9.]"),
    _begun("tailscale", "tskey-auth- tskey-api- tskey-client-", _WORD),
    _begun("supabase", "sbp_ sb_secret_", r"\w"),
    _begun("figma", "figd_", _WORD),
    _begun("brevo", "xkeysib-", _WORD),
)

_HEAD = re.compile(r"(?<!\w)(?=(..))")
_ALL = [(beginning, shape) for shape in (*_SHAPES, *_BEGUN) for beginning in shape.beginnings]
_BEGINNINGS = {
    head: [pair for pair in _ALL if pair[0].startswith(head)] for head in {pair[0][:2] for pair in _ALL}
}
"""By their first two characters: a text has few of these, and there are many beginnings."""


class _InnerShape(NamedTuple):
    """A shape that is recognised by its middle."""

    kind: str
    middle: str
    pattern: str
    sign: str
    """What the gate looks for instead of the pattern: a part that hardly any other text has."""


def _inner(kind: str, middle: str, before: str, rest: str, sign: str = "") -> _InnerShape:
    return _InnerShape(kind, middle, before + rest, sign or rest)


_INNER_SHAPES = (
    _inner("openai", "T3BlbkFJ", r"s(?<!\w.)k-[\w-]{20,200}", r"T3BlbkFJ[\w-]{20,}"),
    _inner("azure", "Q~", r"(?<![\w~.-])[\w~.-]{3}", r"\dQ~[\w~.-]{31,34}(?![\w~.-])"),
    _inner(
        "discord",
        ".",
        r"[MNO](?<!\w.)[\w-]{23,25}",  # `\b` first would try each character
        r"\.[\w-]{6}\.[\w-]{27,38}(?![\w-])",
        sign=r"\.[\w-]{6}\.[\w-]{20}",
    ),
    _inner("telegram", ":AA", r"\d(?<!\w.)\d{7,9}", r":AA[\w-]{28,40}(?![\w-])"),
    _inner("mailchimp", "-us", r"[0-9a-f](?<!\w.)[0-9a-f]{30}", r"[0-9a-f]-us\d{1,2}\b"),
    _inner("facebook", "|", r"\d(?<!\w.)\d{13,14}", r"\d\|[\w-]{27,40}(?![\w-])"),
    _inner("hashicorp", ".atlasv1.", r"\b[a-zA-Z0-9]{14}", r"\.atlasv1\.[\w=-]{60,70}"),
)

_SHAPE_MIN_CHARS = 20
KEY_SIGN = "PRIVATE KEY"
"""What the first line of every private key has."""
_PEM_BEGIN = re.compile(r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_BODY = re.compile(
    r"(?:(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]{16,})*"
    r"(?:(?:\s|\\[nr]){0,8}[A-Za-z0-9+/=]*(?:(?:\s|\\[nr]){0,8}-{1,5}[A-Z0-9 ]{0,64}-{0,4})?\Z)?"
)
"""Up to where a text was cut off, even in its last line."""
_PEM_BODY_MIN_CHARS = 24


def gate_patterns() -> Iterator[str]:
    """What a gate before `find_shapes` looks for."""
    begun = "|".join(widened(shape.pattern) for shape in (*_SHAPES, *_BEGUN) if not shape.sign)
    yield f"(?:^|[^A-Za-z0-9_])(?:{begun})"
    yield from (widened(shape.sign) for shape in (*_SHAPES, *_INNER_SHAPES) if shape.sign)
    yield widened(_PEM_BEGIN.pattern)


def find_shapes(text: str) -> Iterator[Span]:
    """Yield the credentials in the text that have a known shape."""
    yield from find_tokens(text)
    yield from find_private_keys(text)


def find_tokens(text: str, begin: int = 0, end: int = sys.maxsize) -> Iterator[Span]:
    """Yield the tokens that begin in that part of whole lines or words. Each is within a line."""
    # Every shape is one long word: most look-ups are for those, and ordinary text has few of them.
    long_words = " ".join([word for word in text[begin:end].split() if len(word) >= _SHAPE_MIN_CHARS])
    if not long_words:
        return
    pairs = [pair for head in {*_HEAD.findall(long_words)} for pair in _BEGINNINGS.get(head, ())]
    yield from _find_each(text, begin, end, [pair for pair in pairs if pair[0] in long_words])
    for inner in _INNER_SHAPES:
        if inner.middle in long_words and re.search(inner.pattern, long_words):
            matches = re.compile(inner.pattern).finditer(text, begin, end)
            yield from (Span(*match.span(), inner.kind) for match in matches)


def find_beginning(text: str, begin: int, end: int, beginnings: Iterable[str]) -> Iterator[Span]:
    """Yield the tokens in that part that begin in one of these ways."""
    pairs = [pair for beginning in beginnings for pair in _beginning(beginning)]
    return _find_each(text, begin, end, pairs)


@lru_cache(maxsize=64)
def _beginning(known: str) -> list[tuple[str, _Shape]]:
    return [pair for pair in _ALL if pair[0].startswith(known) or known.startswith(pair[0])]


def _find_each(text: str, begin: int, end: int, pairs: Iterable[tuple[str, _Shape]]) -> Iterator[Span]:
    found: set[int] = set()
    for beginning, shape in pairs:
        for span in _find_words(text, begin, end, beginning, shape, found):
            found.add(span.start)
            yield span


def _find_words(
    text: str, begin: int, end: int, beginning: str, shape: _Shape, found: set[int]
) -> Iterator[Span]:
    pattern, group = _compiled(shape.pattern)
    at = text.find(beginning, begin, end)
    while at >= 0:
        done = at + 1
        is_start = not at or not (text[at - 1].isalnum() or text[at - 1] == "_")
        if is_start and at not in found and (match := pattern.match(text, at)):
            done = match.end()
            if not is_specimen(match[group]) and (shape.is_whole or _is_real(match)):
                yield Span(*match.span(group), shape.kind)
        at = text.find(beginning, done, end)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> tuple[re.Pattern[str], str | int]:
    """Return the pattern and the group that is secret."""
    compiled = re.compile(pattern)
    return compiled, "s" if "s" in compiled.groupindex else 0


def _is_real(match: re.Match[str]) -> bool:
    """Return whether what follows a beginning is a key, and not words: `sk-ant-api03-...`."""
    return is_drawn(match["body"]) and not match.string.startswith("..", match.end())


def find_private_keys(text: str) -> Iterator[Span]:
    """Yield the blocks of private keys, each up to its end, or to the end of the text if it was cut off."""
    if KEY_SIGN not in text:
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
