"""Finds values that are assigned to the name of a secret, in code, data, options and prose.

`shapes` finds vendors' own shapes, `credentials` finds headers and URLs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from string import ascii_letters

from holdfast.redact.gates import unlike, widened
from holdfast.redact.likeness import is_counted, is_passphrase, is_sentence
from holdfast.redact.spans import Span, lowered, places

_PASSWORD_NAMES = ("passw", "passphrase", "pwd", "_pass", "_pw")
_SECRET_NAMES = ("token", "secret", "credential", "key")
_OWNERS = (
    "api", "access", "auth", "account", "private", "signing", "encryption", "license", "secret", "iam", "ibm",
    "cloud", "softlayer", "sl", "artif", "artifactory",
)  # fmt: skip
_KEY_OWNERS = tuple(owner + dash for owner in _OWNERS for dash in ("", "_", "-"))
"""`key` alone does not name a secret. After one of these it does."""

_NAME_REST = re.compile(r"[A-Za-z0-9_.-]{0,40}")
_HARMLESS_NAME = re.compile(
    r"(?i)s(?![a-z])|.{0,30}?(?:hash|digest|count|limit|type|name|url|uri|file|path|expir|length|usage|budget|ttl"
    r"|policy|field|prompt|label|hint|regex|pattern|manager|error|required|_at\b|_?id\b|_?ids\b|_?env\b)"
)
_WHOLE_NAME = re.compile(r"[A-Za-z0-9_.-]*\Z")
_EXACT_NAME = re.compile(r"-{0,2}[Pp]ass(?:word|wd|phrase)|[Pp]wd|[A-Z0-9_]*(?:PASS(?:WORD|WD|PHRASE)|PWD)")
"""Behind one of these, also several words in quotation marks are a secret."""
_NAMED_CHARS = 100
"""More than a name and what is between it and its value. A name at the end of a value has its own value: in JSON, no
line break ends `one\\nb_token=two`."""
_NAME_END = r"""\\?["'`]?[\])]{0,2}[ \t]{0,8}"""
"""The end of the name, with an optional quote."""
_GIVEN = r"(?::[ ]?[A-Za-z]{1,20}[ ]?=|\|\|?=|[:=!]?==?|=>|->|<-|:)[ \t]{0,8}"
_SAID = r"[ \t](?P<spoken>is|was)[ \t]{1,4}|(?P<option>[ \t])"
"""What is between a name and its value."""
_PREFIX = r"""(?:[uUrbf@$](?=["']))?"""
_VALUE = re.compile(
    rf"{_NAME_END}(?:{_GIVEN}|{_SAID}){_PREFIX}"
    r"""(?: \\?(?P<mark>["'`])(?P<quoted>(?:(?!\\?(?P=mark))[^\n]){1,512})\\?(?P=mark)
      | (?P<bare>[^\s"'`,;&<>|]{1,64}) )""",
    re.VERBOSE,
)
_VALUE_REST = re.compile(r"""[^\s"'`,;&<>|]*""")
_PLACEHOLDER_WORDS = (
    "none", "null", "nil", "true", "false", "yes", "no", "undefined", "empty", "string", "str", "bytes", "int",
    "text", "any", "optional", "required", "secret", "token", "password", "passwd", "bearer", "basic", "hidden",
    "masked", "unknown", "missing", "invalid", "default", "test", "self", "this", "async", "await", "function", "env",
    "prompt",
)  # fmt: skip
_PLACEHOLDER_BEGINNINGS = (
    "your", "changeme", "placeholder", "redacted", "example", "dummy", "fake", "goeshere",
)  # fmt: skip
"""A word of letters and digits that begins so is a placeholder."""
_PLACEHOLDER = re.compile(
    rf"""(?ix)
    <.*>? | \[.*\]? | \{{.*\}}? | \$.* | %.* | \(.*
  | [x*.\#_•-]{{3,}} | .*x{{4,}}.* | .*\*{{3,}}.* | .*\.\.\.? | (.)\1{{5,}} | (?-i:.*EXAMPLE.*)
  | .*(?<![a-z0-9])(?:your|change[_-]?me|placeholder|redacted(?!:)|example|dummy|fake|goes[_-]?here).*
  | .*(?<![a-z0-9])(?:insert|replace|enter)[_-].*
  | .*\$\{{\w*\}}.* | .*\{{\{{[^{{}}]*\}}\}}.* | .*\$\(.*
  | (?:{"|".join(_PLACEHOLDER_WORDS)})\W*
    """
)
"""A mark within a longer value does not make it a placeholder: the rest of the value is secret too."""
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

_GIVEN_AT_ONCE = r"(?::[A-Za-z]{1,20}=|\|\|?=|[:=!]?==?|=>)\t{0,8}"
"""`_GIVEN` with a `=` and without blanks: what follows it may be a password of letters alone."""
_BARE = "[^\\s\"'`,;&<>|"
_BARE_END = r"""(?:[\s"'`,;&<>|]|$)"""
_MARKS = "\"'`"
_QUOTED = [(rf"\\?{mark}", rf"[^\n{mark}") for mark in _MARKS]
_PLACEHOLDER_BEGINS = "<{$%(["
"""A value that begins with one of these is a placeholder, whatever follows."""
_NO_WORD = "|".join(
    (
        rf"{_BARE}A-Za-z_.:!?)<{{$%(\[-]{_BARE}]{{3}}",
        rf"[.:!?)]{_BARE}]{{3}}",
        rf"[A-Za-z_-]+[.:!?)]*{_BARE}A-Za-z_.:!?)(\[-]",
        r"[A-Za-z_-]+[.:!?)]+[(\[]",
        r"[A-Za-z_-]{20}[A-Za-z_-]*[.(\[]|[A-Za-z_-]*-[A-Za-z_-]*\[|[A-Za-z_-]*-\(",
        r"[A-Za-z_-]*-[A-Za-z_-]*[.:!?)]+[A-Za-z_-]",
        r"[A-Za-z_]+(?:[:!?)][.:!?)]*|\.[.:!?)]+)[A-Za-z_-]|[A-Za-z_]+\.-",
        rf"[A-Za-z_]+(?:\.[A-Za-z_][A-Za-z0-9_]*)+[\]){{}}.:\[]*{_BARE}A-Za-z0-9_\]){{}}.:(\[]",
        r"[A-Za-z_]+(?:\.[A-Za-z_][A-Za-z0-9_]*)+(?:\.[\]){}.:\[]|[\]){}:\[])[\]){}.:\[]*[A-Za-z0-9_(]",
        r"[A-Za-z_]+(?:\.[A-Za-z_][A-Za-z0-9_]*)+\.[0-9]",
    )
)
"""The beginnings of bare values that are more than a word with punctuation and no code: no call, no attribute and no
index.
"""


def _token(character: str) -> str:
    """Return a gate's pattern for a token of such characters (a class without its end) with a digit somewhere."""
    other, any_ = rf"{character}\d]", f"{character}]"
    # By the place of the first digit: only one of these can match at a time.
    early = [rf"{other}{{{at}}}\d{any_}{{{_TOKEN_MIN_CHARS - 1 - at}}}" for at in range(_TOKEN_MIN_CHARS)]
    return rf"(?:{'|'.join(early)}|{other}{{{_TOKEN_MIN_CHARS},}}\d)"


def _one_word() -> str:
    """Return a gate's pattern for a bare value of letters alone, other than a placeholder."""

    def but(letters: str, depth: int) -> str:
        others = "".join(letter for letter in ascii_letters if letter not in letters)
        return rf"[{others}_-][A-Za-z_.:!?)-]{{{max(_PASSWORD_MIN_CHARS - 1 - depth, 0)}}}[A-Za-z_-]*"

    word = unlike(_PLACEHOLDER_WORDS, but, lambda depth: f"[.:!?)]{{{max(_PASSWORD_MIN_CHARS - depth, 0)}}}")
    return f"{word}[.:!?)]*{_BARE_END}"


def _in_marks(mark: str) -> str:
    """Return a gate's pattern for the beginning of a quoted value, other than a placeholder."""
    any_ = _ascii_but(mark)

    def but(letters: str, depth: int) -> str:
        others = _ascii_but(letters + mark if depth else letters + mark + _PLACEHOLDER_BEGINS)
        return f"{others}{any_}{{{max(_PASSWORD_MIN_CHARS - 1 - depth, 0)}}}"

    value = unlike(_PLACEHOLDER_WORDS, but, lambda depth: mark if depth >= _PASSWORD_MIN_CHARS else "")
    return rf"\\?{mark}(?:{value}|{any_}*[^\x00-\x7f])"


def _ascii_but(characters: str) -> str:
    """Return the class of ASCII's characters without these and without the line break. Larger classes take the engine
    long.
    """
    ends = [-1, *sorted({*map(ord, characters), ord("\n")}), 128]
    ranges = [rf"\x{one + 1:02x}-\x{other - 1:02x}" for one, other in pairwise(ends) if other - one > 1]
    return f"[{''.join(ranges)}]"


def gate_patterns() -> Iterator[str]:
    """What a gate before `find_assigned` looks for: a name, what may follow it, and the beginning of a possible
    value. The pattern leaves out most placeholders and code, so that a page of them does not open the gate.
    """
    passwords = "|".join(_PASSWORD_NAMES)
    # The last letters of the owners: a gate with all their names would have to learn far more states.
    owners = "|".join(sorted({owner[-2:] for owner in _OWNERS}))
    secrets = "|".join([*_SECRET_NAMES[:-1], f"(?:{owners})[_-]?key"])
    quoted = "|".join(f"{mark}{character}]{{{_PASSWORD_MIN_CHARS}}}" for mark, character in _QUOTED)
    quoted_word = "|".join(map(_in_marks, _MARKS))
    quoted_token = "|".join(mark + _token(characters) for mark, characters in _QUOTED)
    cases = (
        (secrets, f"{_GIVEN}|{_SAID}", f"{quoted_token}|{_token(_BARE)}"),
        (passwords, _GIVEN, f"{quoted_word}|{_NO_WORD}"),
        (passwords, _GIVEN_AT_ONCE, _one_word()),
        (passwords, _SAID, rf"{quoted}|{_BARE}\d]*\d"),
    )
    for names, between, value in cases:
        yield widened(f"(?i:{names}){_NAME_REST.pattern}{_NAME_END}(?:{between}){_PREFIX}(?:{value})")


def find_assigned(text: str, begin: int = 0, end: int = sys.maxsize) -> Iterator[Span]:
    """Yield values of variables, fields, options and sentences whose name is a secret's and begins in that part."""
    part = lowered(text[begin:end])
    for names, kind, is_real in (
        (_PASSWORD_NAMES, "password", _is_password),
        (_SECRET_NAMES, "secret", _is_secret),
    ):
        for name in names:
            if name not in part:
                continue
            done = 0
            for at in places(part, name):
                if at < done - _NAMED_CHARS or (
                    name == "key" and not part.endswith(_KEY_OWNERS, max(at - 12, 0), at)
                ):
                    continue
                if name == "_pass" and part.startswith(("w", "phrase"), at + len(name)):
                    continue  # judged by the longer name
                span = _assigned(text, begin + at, begin + at + len(name), kind, is_real)
                if span:
                    done = max(span.end - begin, done)
                    yield span


def find_passwords(text: str, name: str) -> Iterator[Span]:
    """Yield the values of passwords behind just this beginning of a name."""
    done = 0
    for at in places(text, name):
        if at < done - _NAMED_CHARS:
            continue
        span = _assigned(text, at, at + len(name), "password", _is_password)
        if span:
            done = max(span.end, done)
            yield span


def _assigned(
    text: str, start: int, name_end: int, kind: str, is_real: Callable[[str, re.Match[str]], bool]
) -> Span | None:
    """Return the value that follows the name, if it is a real one."""
    rest = _NAME_REST.match(text, name_end)
    match = _VALUE.match(text, rest.end()) if rest else None
    if rest is None or match is None or _is_harmless(rest[0]):
        return None
    if match["option"] and not _is_option(text, start):
        return None
    # npm reads `_authToken` only after a registry's address; `shapes` has that form
    if text.endswith("_authToken", 0, name_end):
        return None
    group = "quoted" if match["quoted"] else "bare"
    value = match[group]
    if not is_real(value, match) and not (
        match["quoted"] and is_passphrase(value) and _is_exact(text, start, rest.end())
    ):
        return None
    if not value.isalnum() and _ADDRESS.fullmatch(value):
        return None
    if is_placeholder(value) or _is_marker(text, start):
        return None
    end = match.end("quoted")
    if group == "bare" and (whole := _VALUE_REST.match(text, match.end("bare"))):
        end = whole.end()
    return Span(match.start(group), end, kind)


@lru_cache(maxsize=1024)
def _is_harmless(name_rest: str) -> bool:
    """Return whether a name that goes on like this does not name a secret."""
    return _HARMLESS_NAME.match(name_rest) is not None


def _is_exact(text: str, at: int, end: int) -> bool:
    """Return whether the name is just `password`, or a variable like `DB_PASSWORD`. Longer names may be a label's."""
    name = _WHOLE_NAME.search(text[max(at - 40, 0) : end])
    return name is not None and _EXACT_NAME.fullmatch(name[0]) is not None


def _is_marker(text: str, at: int) -> bool:
    """Return whether the name is inside a mark of an earlier redaction."""
    mark = text.rfind("[redacted:", max(at - 30, 0), at)
    return mark >= 0 and "]" not in text[mark:at]


def _is_option(text: str, at: int) -> bool:
    """Return whether the name belongs to a command-line option, whose value follows after a space."""
    begin = max(at - 40, 0)
    word = text[max(text.rfind(" ", begin, at), text.rfind("\n", begin, at)) + 1 : at]
    return word.startswith("-")


def is_placeholder(value: str) -> bool:
    """Return whether the value is a placeholder. Placeholders are never long."""
    value = value[:_PLACEHOLDER_MAX_CHARS]
    if value.isalnum() and value.isascii() and not value.isalpha():  # the pattern takes five times as long
        small = value.lower()
        is_word = small.startswith(_PLACEHOLDER_BEGINNINGS) or "xxxx" in small or "EXAMPLE" in value
        return is_word or (len(value) > 5 and len(set(small)) == 1)
    return _PLACEHOLDER.fullmatch(value) is not None


def _is_password(value: str, match: re.Match[str]) -> bool:
    if len(value) < _PASSWORD_MIN_CHARS:
        return False
    if match["quoted"]:
        return " " not in value or not (value.replace(" ", "").isalpha() or is_sentence(value))
    if not value.isalnum() and _CODE.fullmatch(value):
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
    if not any(map(str.isdigit, value)) or len(set(value)) < 5 or is_counted(value):
        return False
    return value.isalnum() or not (match["bare"] and _CODE.fullmatch(value))
