"""What two sessions did after the records that they share: a session and its branch, or two branches.

Equal links prove that everything up to there is the same. Sessions that never met share nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from holdfast.protocol.counts import counted
from holdfast.protocol.events import Record, ToolCallFinished, ToolCallStarted
from holdfast.protocol.limits import usd
from holdfast.protocol.tools import Files
from holdfast.views.lines import Line, Span, neutral, one_line
from holdfast.views.stored import StoredSession
from holdfast.views.story import story
from holdfast.views.tables import has_price, money
from holdfast.views.transcript import status_of
from holdfast.views.words import last_words


class Side(msgspec.Struct, frozen=True):
    """One of the two sessions, after the common part."""

    session: str
    status: str
    turns: int
    cost_microusd: int | None
    calls: tuple[tuple[int, str], ...]
    """The record that started it, and its tool."""
    files: tuple[str, ...]
    """What file tools changed."""
    text: str
    """The last words of the model."""


class Comparison(msgspec.Struct, frozen=True):
    """Both sides."""

    common_seq: int
    """The last common record; 0 if the journals share none."""
    left: Side
    right: Side


def compare(left: StoredSession, right: StoredSession) -> Comparison:
    """Compare two journals."""
    pairs = zip(left.stored, right.stored, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0].link == pair[1].link, pairs))
    return Comparison(common, _side(left, common), _side(right, common))


def _side(session: StoredSession, common_seq: int) -> Side:
    told = story(session.records)
    after = [record for record in session.records if record.seq > common_seq]
    attempts = [attempt for attempt in told.attempts if attempt.seq > common_seq]
    is_priced = all(has_price(told, attempt.run) for attempt in attempts)
    return Side(
        session.row.session,
        session.row.status,
        sum(each.status == "answered" and not each.started.is_last_pass for each in attempts),
        sum(attempt.spent_microusd for attempt in attempts) if is_priced else None,
        tuple(_calls(after)),
        changed_files(after),
        last_words(after),
    )


def _calls(records: Sequence[Record]) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for record in records:
        event = record.event
        if isinstance(event, ToolCallStarted) and event.call_id not in seen:
            seen.add(event.call_id)
            yield record.seq, event.name


def changed_files(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the paths that calls of file tools changed, each once."""
    planned: dict[str, Files] = {}
    paths: dict[str, None] = {}
    for record in records:
        match record.event:
            case ToolCallStarted(call_id=call_id, expects=Files() as files):
                planned[call_id] = files
            case ToolCallFinished(call_id=call_id, result=result) if result.status == "ok":
                changes = planned[call_id].changes if call_id in planned else ()
                paths |= {change.path: None for change in changes if change.before != change.after}
    return tuple(paths)


def comparison_row(found: Comparison) -> dict[str, Any]:
    """Return the comparison for scripts."""
    return {"common_seq": found.common_seq, "left": _row(found.left), "right": _row(found.right)}


def _row(side: Side) -> dict[str, Any]:
    return {
        "session": side.session,
        "status": side.status,
        "turns": side.turns,
        "cost_usd": None if side.cost_microusd is None else usd(side.cost_microusd),
        "calls": [{"seq": seq, "tool": tool} for seq, tool in side.calls],
        "files": list(side.files),
        "text": side.text,
    }


def comparison_lines(
    found: Comparison, left: StoredSession, right: StoredSession, width: int
) -> Iterator[Line]:
    """Return the comparison for people."""
    shared = counted(found.common_seq, "record")
    yield [f"They share their first {shared}." if found.common_seq else "They share no record."]
    for side, session in ((found.left, left), (found.right, right)):
        yield [""]
        yield [Span(side.session, "bold"), "  ", status_of(session.row)]
        tools = ", ".join(f"{neutral(tool)} ({seq})" for seq, tool in side.calls)
        facts = (
            ("spent", f"{counted(side.turns, 'turn')}, {money(side.cost_microusd)}"),
            ("calls", tools or "none"),
            ("files", ", ".join(map(neutral, side.files)) or "none"),
            ("answer", one_line(side.text, max(width * 2, 80)) or "none"),
        )
        for name, value in facts:
            yield [Span(f"  {name:<10}", "dim"), value]
