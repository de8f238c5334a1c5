"""Finds what a result shows: its text without what differs each time, and the test counts in it. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from holdfast.protocol.evidence import NOTHING_SHOWN, Evidence
from holdfast.protocol.untrusted import decode_untrusted

READ_CHARS = 65_536
"""A longer text counts with its head, its tail and its number of lines."""
_VALUE_CHARS = 300
_VALUES = 20
_TESTS_CHARS = 4_000
_MAX_TESTS_CHARS = 200

# The first digit is looked for before anything else: that is fast, and most texts have few numbers. A number right
# after one of these characters is a part of something else, such as the line in `a.py:12:30`.
_VARYING = re.compile(
    r"""[0-9](?<![\w.:/-][0-9])(?:
        \d{3}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?   # 2026-11-21T23:18:00Z
      | \d?:[0-5]\d(?::[0-5]\d)?(?:[.,]\d+)?(?![\w:])                             # 23:18:00
      | (?<=1)[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?!\w)                    # 1763766000, also in ms, us, ns
      | (?<=0)x[0-9a-fA-F]{4,16}(?!\w)                                            # 0x7f3a52c0
      | \d*+(?:\.\d++)?[ ]?(?:                                                    # 0.3s, 12 ms, 1m2.5s, 3 MB/s
          (?:ns|[uµμ]s|ms|secs?|seconds?|s|mins?|minutes?|hours?|m\d+(?:\.\d+)?s)(?![\w/])
        | [kKMGT]?i?(?:B|it|bytes|files)/s
        )
    )""",
    re.VERBOSE,
)
_PROCESS = re.compile(r"(?:pid|PID|Pid|rocess|hread|tid|TID)[ =:#]{0,3}\d+\b")
_PROCESS_COLUMNS = frozenset({"PID", "PPID", "TID", "LWP", "SPID"})
_COLUMNS = 5
"""How many of the first columns of a list of processes are looked at."""
_PS_AUX = re.compile(r"^(\S+) +\d+ +(\d+\.\d) +(\d+\.\d) +\d+ +\d+ (?=\S)", re.MULTILINE)
_PS_EF = re.compile(r"^(\S+) +\d+ +\d+ +(\d+) +(?=\S+ +(?:\?|pts/\d+|tty\d*) )", re.MULTILINE)
"""Rows of `ps aux` and `ps -ef`, also without their head, which `| grep NAME` drops."""
_BRACKETED = re.compile(r"\[\d+\](?:(?=:)|[ ]\d+$)", re.MULTILINE)
"""`sshd[4711]:`, or `[1] 4711` of a shell."""
_TEMPORARY = re.compile(r"tmp(?<!\wtmp)(?:[a-z0-9_]{8}|\.[A-Za-z0-9]{6,12})\b")
_FOLDER = re.compile(r"pytest-\d+\b")
_PORT = re.compile(r"(?:127\.0\.0\.1|localhost):\d{4,5}\b")
_UNIQUE_END = re.compile(r"-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_UNIQUE = re.compile(rf"\b[0-9a-f]{{8}}{_UNIQUE_END.pattern}")
_QUOTED = re.compile(r"""(?<!\w)'[^'\n]{0,300}'(?!\w)|"[^"\n]{0,300}"|`[^`\n]{0,300}`""")

_COUNTS = re.compile(r"\b\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|ignored)\b")
_UNITTEST = re.compile(r"^Ran \d+ tests?\b|^FAILED \([^)\n]*\)|^OK\b(?: \([^)\n]*\))?", re.M)
_TAP = re.compile(r"^# (?:tests|pass|fail)\s+\d+|^(?:not )?ok \d+", re.M)
_GO = re.compile(r"^\s*--- (?:PASS|FAIL): \S+|^(?:ok|FAIL)\s+\S+", re.M)


def evidence_of(text: str, status: str, *, is_negative: bool, ran: bool, arguments: str) -> Evidence:
    """Return what a result shows.

    Args:
        text: The whole redacted output.
        status: As `CallResult.status`.
        is_negative: As `Evidence.is_negative`.
        ran: Whether the call ran a program, which may have run tests.
        arguments: The arguments as JSON. An error message is compared without them, and without what it quotes.
    """
    # An example: "2 failed, 5 passed in 0.31s" with exit code 1. Its digest is that of "2 failed, 5 passed in ~", and
    # its tests are "2 failed, 5 passed".
    tests = counts_of_tests(text) if ran else ""
    kept = text if len(text) <= READ_CHARS else bounded(text)
    if status != "ok" and not is_negative:
        return Evidence(digest_of(_error(kept, arguments)), tests)
    plain = without_varying(kept)
    if plain is text and not tests and not is_negative:
        return NOTHING_SHOWN
    return Evidence(digest_of(plain) if plain is not text else "", tests, is_negative)


def digest_of(text: str) -> str:
    """Return a short digest."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def bounded(text: str) -> str:
    """Return head and tail of a long text, with the number of its lines."""
    half = READ_CHARS // 2
    return f"{text[:half]}\0{text.count(chr(10))}\0{text[-half:]}"


def without_varying(text: str) -> str:
    """Return the text without what differs each time; the same object if it has nothing of that kind."""
    # Looking for a word first takes a hundredth of the time that its pattern takes.
    plain = _VARYING.sub("~", text)
    if "[" in text:
        plain = _BRACKETED.sub("~", plain)
    if "tmp" in text:
        plain = _TEMPORARY.sub("~", plain)
    if "pytest-" in text:
        plain = _FOLDER.sub("~", plain)
    if ":" in text and ("127.0.0.1:" in text or "localhost:" in text):
        plain = _PORT.sub("~", plain)
    if (
        "pid" in text
        or "PID" in text
        or "rocess" in text
        or "hread" in text
        or "tid" in text
        or "TID" in text
    ):
        plain = _PROCESS.sub("~", plain)
    if "PID" in text or " ? " in text or " pts/" in text or " tty" in text:
        plain = _without_processes(plain)
    if "-" in text and _UNIQUE_END.search(text) is not None:
        plain = _UNIQUE.sub("~", plain)
    return text if plain == text else plain


def _without_processes(text: str) -> str:
    """Return the text without the ids, and the sizes in memory, in lists of processes."""
    plain = _PS_EF.sub(r"\1 ~ \2 ", _PS_AUX.sub(r"\1 ~ \2 \3 ", text))
    if "PID" not in plain:
        return plain
    lines, columns = [], frozenset[int]()
    for line in plain.split("\n"):
        words = line.split(None, _COLUMNS)
        if heads := frozenset(place for place, word in enumerate(words) if word in _PROCESS_COLUMNS):
            columns = heads
        elif not words:
            columns = frozenset()
        elif columns:
            line = " ".join("~" if n in columns and word.isdigit() else word for n, word in enumerate(words))
        lines.append(line)
    return "\n".join(lines)


def _error(text: str, arguments: str) -> str:
    """Return the message without the values that it quotes: two errors that differ only in them are the same."""
    for value in sorted(_texts(arguments), key=len, reverse=True)[:_VALUES]:
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "~", text)
    return without_varying(_QUOTED.sub("~", text))


def _texts(arguments: str) -> set[str]:
    """Return the short texts among the arguments."""
    try:
        values: Any = decode_untrusted(arguments or "{}")
    except msgspec.DecodeError:
        return set()
    found = values.values() if isinstance(values, dict) else ()
    return {value for value in found if isinstance(value, str) and 0 < len(value) <= _VALUE_CHARS}


def counts_of_tests(text: str) -> str:
    """Return the test counts at the end of an output (pytest, unittest, cargo, jest, go, TAP); empty without any."""
    end = text[-_TESTS_CHARS:]
    found: list[str] = []
    if " passed" in end or " failed" in end or " error" in end:
        found = _COUNTS.findall(end)
    if not found and "Ran " in end:
        found = _UNITTEST.findall(end)
    if not found and ("--- " in end or "ok" in end or "FAIL" in end or "# pass" in end):
        found = _GO.findall(end) or _TAP.findall(end)
    counts = ", ".join(found)
    return counts if len(counts) <= _MAX_TESTS_CHARS else digest_of(counts)
