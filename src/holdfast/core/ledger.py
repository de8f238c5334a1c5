"""The ledger of a session: what was done, in short lines, for a model that no longer sees the messages about it.

Bounded: the oldest lines become counts. The journal has everything.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.protocol.tools import Effect, Expectation, Files
from holdfast.protocol.untrusted import decode_untrusted

MOST_CHARS = 7_000
"""About 2,000 tokens."""
MOST_LINE_CHARS = 160

EntryKind = Literal["file", "command", "call", "decision", "failed"]
"""A file that was written, a command that ran, another call that writes or sends, what a person decided, a call that
failed again and again."""

_TITLES: dict[EntryKind, str] = {
    "file": "Files written",
    "command": "Commands that ran",
    "call": "Other calls that write or send",
    "decision": "Decisions of people",
    "failed": "Calls that failed three times with the same error",
}


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A line of the ledger."""

    kind: EntryKind
    what: str
    seq: int
    """The last record about it."""
    times: int = 1


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The lines, the newest last."""

    entries: tuple[Entry, ...] = ()
    folded: tuple[tuple[EntryKind, int], ...] = ()
    """How many older entries of each kind there were."""
    chars: int = 0
    """The size of all lines."""


def noted(ledger: Ledger, kind: EntryKind, what: str, seq: int) -> Ledger:
    """Return the ledger with another line. If there is one about the same already, it moves to the end."""
    # An example: `npm test` ran at record 41 and runs again at record 97. One line stays, "npm test (record 97, 2
    # times)", and it moves to the end, so that what is folded first is what nobody touched for long.
    what = " ".join(what.split())
    what = what if len(what) <= MOST_LINE_CHARS else what[: MOST_LINE_CHARS - 1] + "…"
    others = [each for each in ledger.entries if each.what != what or each.kind != kind]
    before = [each for each in ledger.entries if each.what == what and each.kind == kind]
    entries = [*others, Entry(kind, what, seq, 1 + sum(each.times for each in before))]
    chars = ledger.chars if before else ledger.chars + _chars(entries[-1])
    folded = dict(ledger.folded)
    # The counts stay, so that the model knows that there was more.
    while chars > MOST_CHARS and len(entries) > 1:
        oldest = entries.pop(0)
        chars -= _chars(oldest)
        folded[oldest.kind] = folded.get(oldest.kind, 0) + oldest.times
    return Ledger(tuple(entries), tuple(folded.items()), chars)


def done(
    ledger: Ledger, name: str, arguments: str, effect: Effect, expects: Expectation | None, seq: int
) -> Ledger:
    """Return the ledger after a call whose attempt has ended. Reading leaves no line."""
    if effect in ("read", "ask"):
        return ledger
    # A tool that plans its effect names the files. A shell command may have changed anything, so that its own text
    # is the best that can be told.
    if isinstance(expects, Files):
        for change in expects.changes:
            ledger = noted(ledger, "file", change.path, seq)
        return ledger
    command = _command(arguments)
    if command:
        return noted(ledger, "command", command, seq)
    return noted(ledger, "call", f"{name} {arguments}", seq)


def _command(arguments: str) -> str:
    try:
        found = decode_untrusted(arguments or "{}")
    except msgspec.DecodeError:
        return ""
    command = found.get("command") if isinstance(found, dict) else None
    return command if isinstance(command, str) else ""


def _chars(entry: Entry) -> int:
    return len(entry.what) + 24  # its record number and count


def text_of(ledger: Ledger) -> str:
    """Return the ledger for the model, one line for each entry; empty without entries."""
    lines: list[str] = []
    folded = dict(ledger.folded)
    for kind, title in _TITLES.items():
        entries = [each for each in ledger.entries if each.kind == kind]
        if not entries and kind not in folded:
            continue
        lines.append(f"{title}:")
        if kind in folded:
            lines.append(f"- {folded[kind]} earlier ones")
        lines += [f"- {each.what} (record {each.seq}{_times(each.times)})" for each in entries]
    return "\n".join(lines)


def _times(times: int) -> str:
    return f", {times} times" if times > 1 else ""
