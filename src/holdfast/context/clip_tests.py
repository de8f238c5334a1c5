"""What matters in the output of tests: the name and the assertion of each failure, wherever it is.

Pure and linear. Each format is a row of `_FORMATS`: how its failures begin, and which of their lines say why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from holdfast.protocol.counts import counted

COUNTED = 3_000
"""The most failures that are counted."""
_LISTED = 500
"""The most failures that are shown."""
_LEAST_CHARS = 160
"""When less room is left, further failures are only counted."""
_LEAST_LINE_CHARS = 120
"""How much of its first line a failure shows, however many there are."""
_LINE_CHARS = 400
_NAME_CHARS = 300
_LINES = 60
"""How many lines of a failure are looked at."""
_BEFORE_CHARS = 4_000
"""How far before its verdict the words of a test are looked for (`go test -v`)."""


class _Block(msgspec.Struct, frozen=True):
    """A failure in a text, from its first line to the next failure."""

    name: str
    begin: int
    start: int
    """Where the text after the first line begins."""
    end: int


Why = Callable[[str, _Block], Iterator[str]]
"""Returns the lines of a failure that say why, the most important ones first."""


class _Format(msgspec.Struct, frozen=True):
    """How a test runner reports failures."""

    name: str
    signs: tuple[str, ...]
    """The first of these texts comes before all failures. Without any, nothing else is searched for."""
    first_line: re.Pattern[str]
    """It begins with a literal text, so that a search is quick."""
    end: re.Pattern[str]
    """What ends a failure, beside the next one."""
    why: Why
    heading: re.Pattern[str] | None = None
    """What begins a list of tests. The group `failed` says that they failed; tests of other lists are left out."""
    repeats: bool = False
    """Whether a failure may be reported twice."""


def failures(text: str, room: int) -> str:
    """Return all failures in the output of a test runner, within so many characters; empty for other texts."""
    found = [(format_, begins) for format_ in _FORMATS if (begins := _begins(text, format_))]
    if len(found) > 1 and found[1][0] is _SUMMARY:
        # pytest lists all failures once more. With --tb=line or --tb=no, only this list has their names.
        with_why, in_short, *others = found
        found = [with_why if len(with_why[1]) >= len(in_short[1]) else in_short, *others]
    total = sum(len(begins) for _, begins in found)
    if not total:
        return ""
    names = ", ".join(dict.fromkeys(format_.name for format_, _ in found))
    more = "at least " if any(len(begins) == COUNTED for _, begins in found) else ""
    told = [f"[{names}: {more}{counted(total, 'failure')}]"]
    left = room - len(told[0]) - len("\n[3,000 more failures]")
    for format_, begins in found:
        for number, begin in enumerate(begins):
            rest = total - len(told) + 1
            if left < _LEAST_CHARS or len(told) > _LISTED:
                return "\n".join([*told, f"[{counted(rest, 'more failure')}]"])
            block = _block(
                text, format_, begin, begins[number + 1] if number + 1 < len(begins) else len(text)
            )
            told.append(_entry(block.name, format_.why(text, block), left // rest))
            left -= len(told[-1]) + 1
    return "\n".join(told)


def _begins(text: str, format_: _Format) -> list[int]:
    """Return where the first failures begin."""
    places = [place for sign in format_.signs if (place := text.find(sign)) >= 0]
    if not places:
        return []
    found: dict[object, int] = {}
    first_lines = (
        match
        for begin, end in _lists(text, format_, min(places))
        for match in format_.first_line.finditer(text, begin, end)
    )
    for match in islice(first_lines, COUNTED):
        begin, name = match.start(), match["name"][:_NAME_CHARS]
        if _is_first_in_line(text, begin) and not _NO_FAILURE.search(name):
            found.setdefault(name if format_.repeats else begin, begin)
    return [*found.values()]


def _lists(text: str, format_: _Format, start: int) -> Iterator[tuple[int, int]]:
    """Return where failures are listed: pytest -rA and cargo --show-output list what passed in the same way."""
    begin, has_failed = start, True
    for heading in format_.heading.finditer(text, start) if format_.heading else ():
        if has_failed:
            yield begin, heading.start() + 1
        begin, has_failed = heading.start(), heading["failed"] is not None
    if has_failed:
        yield begin, len(text)


def _block(text: str, format_: _Format, begin: int, end: int) -> _Block:
    match = format_.first_line.match(text, begin)
    name, start = (match["name"], match.end()) if match else ("", begin)
    after = format_.end.search(text, start, end)
    name = name.strip(" -\t\r")[:_NAME_CHARS]
    return _Block(name, begin, start, after.start() if after else end)


def _is_first_in_line(text: str, place: int) -> bool:
    if text[place] == "\n" or place == 0 or text[place - 1] == "\n":
        return True
    before = text[max(place - 80, 0) : place]
    return before.isspace() if "\n" not in before else not before[before.rfind("\n") + 1 :].strip()


def _entry(name: str, why: Iterator[str], chars: int) -> str:
    """Return the name and as many lines as fit, at least one."""
    told = [f"- {name}"]
    left = chars - len(told[0])
    for line in why:
        if len(told) > 1 and min(len(line), _LINE_CHARS) + 3 > left:
            break
        told.append(f"  {line[: max(min(_LINE_CHARS, left - 3), _LEAST_LINE_CHARS)]}")
        left -= len(told[-1]) + 1
    return "\n".join(told)


def _lines(text: str, start: int, end: int) -> Iterator[str]:
    """Return the first lines of a stretch that are not blank, without the spaces at their ends."""
    for found in islice(_LINE.finditer(text, start, end), _LINES):
        if line := found[0].strip("\n").rstrip():
            yield line


# --- the formats ----------------------------------------------------------------------------------


def _why_pytest(text: str, block: _Block) -> Iterator[str]:
    """The last group of lines that begin with `E`, then where it is; else the end of a traceback."""
    group: list[re.Match[str]] = []
    for found in islice(_E_LINE.finditer(text, block.start, block.end), 2_000):
        group = [*group, found][-_LINES:] if group and found.start() == group[-1].end() else [found]
    if not group:
        return _why_traceback(text, block)
    place = next(_lines(text, group[-1].end(), block.end), "")
    where = [place] if _PLACE.match(place) else []
    return iter([*(each["why"].rstrip() for each in group[:8]), *where, *(each["why"] for each in group[8:])])


def _why_traceback(text: str, block: _Block) -> Iterator[str]:
    """The exception after the last traceback, with its message; without a traceback, the end of the block."""
    place = text.rfind("\nTraceback (most recent call last):", block.start, block.end)
    raised = _NOT_INDENTED.search(text, place + 1, block.end) if place >= 0 else None
    if raised is None:
        return _why_end(text, block)
    return (
        line for line in _lines(text, raised.start(), block.end) if not line.startswith(("-----", "====="))
    )


def _why_end(text: str, block: _Block) -> Iterator[str]:
    lines = list(_lines(text, max(block.start, block.end - 1_000), block.end))
    return iter(lines[-8:])


def _why_go(text: str, block: _Block) -> Iterator[str]:
    """The lines below the verdict; with -v, what the test printed before it."""
    depth = block.begin - (text.rfind("\n", max(block.begin - 80, 0), block.begin) + 1)
    is_silent = True
    for line in _lines(text, block.start, block.end):
        if len(line) - len(line.lstrip()) <= depth and not line.startswith("panic:"):
            break
        if not line.lstrip().startswith("--- "):  # the verdict of a part of it
            is_silent = False
            yield line.strip()
    if is_silent:
        name = block.name.partition(" ")[0]
        since = max(block.begin - _BEFORE_CHARS, 0)
        heads = [f"=== {verb}{name}\n" for verb in ("RUN   ", "CONT  ", "NAME  ")]
        place, head = max((text.rfind(head, since, block.begin), head) for head in heads)
        if place >= 0:
            said = _lines(text, place + len(head) - 1, block.begin)
            yield from (line.strip() for line in said if not line.lstrip().startswith(("=== ", "--- ")))


def _why_go_build(text: str, block: _Block) -> Iterator[str]:
    """What the compiler said about the package before it."""
    place = text.rfind(
        f"\n# {block.name.partition(' ')[0]}", max(block.begin - _BEFORE_CHARS, 0), block.begin
    )
    for line in _lines(text, place + 1, block.begin) if place >= 0 else ():
        if line.startswith(("# ", "FAIL", "ok ", "--- ")):
            break
        yield line


def _why_cargo(text: str, block: _Block) -> Iterator[str]:
    """The panic with its message; the end of what it printed, if it did not panic."""
    place = text.find(" panicked at ", block.start, block.end)
    if place < 0:
        yield from _why_end(text, block)
        return
    begin = max(text.rfind("\n", max(block.start, place - _LINE_CHARS), place), block.start)
    for line in _lines(text, begin, block.end):
        if line.startswith(("stack backtrace:", "note: ")):
            break
        yield line


def _why_jest(text: str, block: _Block) -> Iterator[str]:
    return (line.strip() for line in _lines(text, block.start, block.end) if not _JEST_CODE.match(line))


def _why_tap(text: str, block: _Block) -> Iterator[str]:
    """The diagnostics, without the stack. Where it is comes last, since every test has that."""
    place = ""
    for line in _lines(text, block.start, block.end):
        said = line.strip()
        if _TAP_END.match(said):
            break
        if said.startswith("location:"):
            place = said
        elif not _TAP_NOISE.match(said):
            yield said
    if place:
        yield place


_LINE = re.compile(r"\n[^\n]*")
_E_LINE = re.compile(r"\n(?P<why>E [^\n]*)")
_PLACE = re.compile(r"\S[^\n]*:\d+: ")
_NOT_INDENTED = re.compile(r"\n[^ \n]")
_NO_FAILURE = re.compile(r"# *(?:todo|skip)\b|\AConsole\Z", re.IGNORECASE)
"""Names of what did not fail: a test that may fail (TAP), and what tests printed (jest)."""
_JEST_CODE = re.compile(r"\s*(?:>?\s*\d+ \||\||at )")
_TAP_END = re.compile(r"(?:not )?ok\b|# Subtest|\d+\.\.\d+|# tests |stack:|\.\.\.\Z")
_TAP_NOISE = re.compile(r"---\Z|duration_ms:|failureType:|error: [|>]-?\Z")

_SUMMARY = _Format(
    name="pytest",
    signs=("= short test summary info =",),
    first_line=re.compile(r"\n(?:FAILED|ERROR) (?P<name>[^\n]+)"),
    end=re.compile(r"\n="),
    why=lambda text, block: iter(()),
)
_FORMATS = (
    _Format(
        name="pytest",
        signs=("= FAILURES =", "= ERRORS ="),
        first_line=re.compile(r"\n_(?=[^\n]{38})_* (?P<name>[^_\n][^\n]{0,1000}) _+(?=\n)"),
        end=re.compile(r"\n====="),
        why=_why_pytest,
        heading=re.compile(r"\n=+ (?:(?P<failed>FAILURES|ERRORS)|X?PASSES|XFAILURES) =+(?=\n)"),
    ),
    _SUMMARY,
    _Format(
        name="unittest",
        signs=("\n======================================================================\n",),
        first_line=re.compile(r"\n====={66}\n(?P<name>(?:FAIL|ERROR|UNEXPECTED SUCCESS): [^\n]+)"),
        end=re.compile(r"\n-----{66}\nRan "),
        why=_why_traceback,
    ),
    _Format(
        name="go test",
        signs=("--- FAIL:",),
        first_line=re.compile(r"--- FAIL: (?P<name>[^\n]+)"),
        end=re.compile(r"\n(?:FAIL|ok)\b"),
        why=_why_go,
    ),
    _Format(
        name="go build",
        signs=("\nFAIL\t",),
        first_line=re.compile(r"\nFAIL\t(?P<name>[^\n]+ failed\])"),
        end=re.compile(r"\n"),
        why=_why_go_build,
    ),
    _Format(
        name="cargo test",
        signs=("\nfailures:\n",),
        first_line=re.compile(r"\n---- (?P<name>[^\n]+) stdout ----"),
        end=re.compile(r"\nfailures:\n"),
        why=_why_cargo,
        heading=re.compile(r"\n(?:(?P<failed>failures)|successes):(?=\n)"),
    ),
    _Format(
        name="jest",
        signs=("\n  ●",),
        first_line=re.compile(r"\n  ● (?P<name>[^\n]+)"),
        end=re.compile(r"\n(?:Test Suites: |PASS |FAIL )"),
        why=_why_jest,
        repeats=True,
    ),
    _Format(
        name="TAP",
        signs=("not ok",),
        first_line=re.compile(r"not ok \d+(?P<name>[^\n]*)"),
        end=re.compile(r"\n\d+\.\.\d+\n"),
        why=_why_tap,
    ),
)
