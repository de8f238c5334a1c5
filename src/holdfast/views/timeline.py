"""The timeline of a session: turns, model calls and tool calls as bars, with repeats and cost.

Idle time (a wait for a person, a process that was gone) is drawn short, so that an approval after a night does not
squeeze the work into one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from holdfast.protocol.counts import counted
from holdfast.protocol.limits import usd
from holdfast.views.lines import (
    MASKED,
    Line,
    Span,
    clipped,
    iso,
    local,
    one_line,
    padded,
    short,
    took,
)
from holdfast.views.story import Call, Run, Story
from holdfast.views.tables import (
    STYLES,
    counted_calls,
    counted_turns,
    has_price,
    length_of,
    money,
    outcome_of,
)

_SHOWN_TURNS = 60
_NAME_CELLS = 14
_TURN_CELLS = 8
_TOOK_CELLS = 8
_BAR_CELLS = 10
"""The least width of the bars. Notes are shown only if there is room beside them."""
_IDLE_SHARE = 0.04
"""A gap is drawn no longer than this share of the busy time."""
_TOLD_GAP_MS = 60_000
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Bar(NamedTuple):
    """One line of the timeline."""

    turn: int
    name: str
    start_ms: int
    end_ms: int
    status: str
    length: str
    """The duration; empty if it is unknown."""
    note: str
    is_model: bool = False


def timeline_lines(story: Story, width: int) -> Iterator[Line]:
    """Return the timeline of each run."""
    if not story.runs:
        yield ["No run yet."]
    for run in story.runs:
        bars = _bars(story, run)
        yield from _title(story, run, bars)
        shown = _newest_turns(bars)
        if len(shown) < len(bars):
            yield [Span(f"  ... earlier turns than {shown[0].turn} are hidden; --json shows them", "dim")]
        yield from _picture(shown, width)
        if run.stopped is not None:
            why = f": {one_line(run.stopped.message or run.stopped.reason, width - 20)}"
            yield [Span("  ■ ", STYLES.get(run.stopped.status, "bold")), f"{run.stopped.status}{why}"]
        yield [""]


def _title(story: Story, run: Run, bars: Sequence[Bar]) -> Iterator[Line]:
    own = [attempt for attempt in story.attempts if attempt.run == run.number]
    calls = [call for call in story.calls if call.run == run.number]
    cost = sum(attempt.spent_microusd for attempt in own) if has_price(story, run.number) else None
    repeats = sum(call.repeat > 1 for call in calls)
    span_ms = max([run.at_ms, *(bar.end_ms for bar in bars)]) - run.at_ms
    facts = [
        counted_turns(own),
        counted(sum(a.is_work for a in own), "model call"),
        counted_calls(calls),
        *([counted(repeats, "repeat")] if repeats else []),
        took(span_ms),
        money(cost),
    ]
    yield [
        Span(f"run {run.number}", "bold"), f"  {local(run.at_ms)}  ",
        Span(" · ".join(facts), "bold" if run.stopped is None else ""),
    ]  # fmt: skip
    if run.task:
        yield [Span(f"  “{one_line(run.task, 90)}”", "italic")]


def _bars(story: Story, run: Run) -> list[Bar]:
    """Return everything that took time in a run, ordered by turn and start."""
    bars: list[Bar] = []
    for attempt in (a for a in story.attempts if a.run == run.number):
        usage, started = attempt.usage, attempt.started
        again = f"try {started.attempt}" if started.attempt > 1 else ""
        tokens = f"{short(usage.input_tokens)}→{short(usage.output_tokens)}" if usage.total_tokens else ""
        cost = money(attempt.spent_microusd) if attempt.spent_microusd else ""
        told = "" if attempt.status == "answered" else outcome_of(attempt)
        note = " · ".join(part for part in (again, tokens, cost, told) if part)
        name = "final answer" if started.is_last_pass else "model" if attempt.is_work else started.purpose
        end_ms = attempt.ended_ms or story.last_ms
        length = length_of(attempt)
        bars.append(
            Bar(started.turn, name, attempt.at_ms, end_ms, attempt.status, length, note, is_model=True)
        )
    for call in (c for c in story.calls if c.run == run.number):
        repeat = f"↻ {call.repeat}" if call.repeat > 1 else ""
        told = "" if call.status == "ok" else call.status
        masked = MASKED if call.is_masked else ""
        note = " · ".join(part for part in (masked, repeat, told, one_line(call.arguments, 60)) if part)
        end_ms = call.ended_ms or story.last_ms
        bars.append(Bar(call.turn, call.name, call.at_ms, end_ms, call.status, length_of(call), note))
    return sorted(bars, key=lambda bar: (bar.turn, not bar.is_model, bar.start_ms))


def _newest_turns(bars: list[Bar]) -> list[Bar]:
    turns = sorted({bar.turn for bar in bars})[-_SHOWN_TURNS:]
    return [bar for bar in bars if bar.turn in set(turns)]


def _picture(bars: Sequence[Bar], width: int) -> Iterator[Line]:
    if not bars:
        return
    left = max(width - _TURN_CELLS - _NAME_CELLS - _TOOK_CELLS - 3, _BAR_CELLS)
    note_cells = width // 3 if left >= _BAR_CELLS + width // 3 else 0
    bar_cells = left - note_cells
    place = _axis(bars)
    ended_ms = bars[0].start_ms
    for turn, group in groupby(bars, key=lambda bar: bar.turn):
        for index, bar in enumerate(group):
            if bar.start_ms - ended_ms > _TOLD_GAP_MS:
                idle = took(bar.start_ms - ended_ms)
                yield [Span(f"{'':<{_TURN_CELLS}}· · · idle for {idle} · · ·", "dim")]
            ended_ms = max(ended_ms, bar.end_ms)
            label = padded(f"turn {turn}" if index == 0 else "", _TURN_CELLS)
            name = padded(clipped(one_line(bar.name, 40), _NAME_CELLS), _NAME_CELLS)
            drawn = _drawn(place(bar.start_ms) * bar_cells, place(bar.end_ms) * bar_cells, bar_cells)
            style = STYLES.get(bar.status, "red") if bar.status not in ("ok", "answered") else ""
            yield [
                Span(label, "bold"),
                Span(name + " ", style),
                Span(drawn, style or ("blue" if bar.is_model else "green")),
                Span(padded(bar.length, _TOOK_CELLS, is_right=True), "dim"),
                Span("  " + one_line(bar.note, note_cells - 2) if note_cells else "", style or "dim"),
            ]


def _axis(bars: Sequence[Bar]) -> Callable[[int], float]:
    """Return a function from a time to its place, from 0 to 1, with gaps shortened."""
    busy: list[tuple[int, int]] = []
    for start, end in sorted((bar.start_ms, max(bar.end_ms, bar.start_ms + 1)) for bar in bars):
        if busy and start <= busy[-1][1]:
            busy[-1] = (busy[-1][0], max(busy[-1][1], end))
        else:
            busy.append((start, end))
    longest_gap = max(sum(end - start for start, end in busy) * _IDLE_SHARE, 1)
    begins: list[float] = [0.0]
    for (start, end), (following, _) in pairwise(busy):
        begins.append(begins[-1] + (end - start) + min(following - end, longest_gap))
    whole = begins[-1] + busy[-1][1] - busy[-1][0]

    def place(at_ms: int) -> float:
        for (start, end), begin in zip(reversed(busy), reversed(begins), strict=True):
            if at_ms >= start:
                return (begin + min(at_ms, end) - start) / whole
        return 0.0

    return place


def _drawn(start: float, end: float, width: int) -> str:
    """Draw a bar between two places, to an eighth of a cell, and never empty."""
    first = min(int(start), width - 1)
    eighths = max(round((end - first) * 8), 1)
    full, rest = divmod(min(eighths, (width - first) * 8), 8)
    drawn = " " * first + "█" * full + (_EIGHTHS[rest] if rest else "")
    return padded(drawn, width)


def timeline_rows(story: Story) -> Iterator[dict[str, Any]]:
    """Return every turn as plain data with its calls."""
    calls_of_turn: dict[tuple[int, int], list[Call]] = {}
    for call in story.calls:
        calls_of_turn.setdefault((call.run, call.turn), []).append(call)
    for run in story.runs:
        attempts = [attempt for attempt in story.attempts if attempt.run == run.number]
        is_priced = has_price(story, run.number)
        for turn, group in groupby(attempts, key=lambda attempt: attempt.started.turn):
            tried = list(group)
            calls = calls_of_turn.get((run.number, turn), [])
            ends = [a.ended_ms for a in tried] + [call.ended_ms for call in calls]
            yield {
                "run": run.number,
                "turn": turn,
                "at": iso(tried[0].at_ms),
                "duration_ms": max(max(ends) - tried[0].at_ms, 0),
                "model_calls": [
                    {
                        "number": a.number, "purpose": a.started.purpose, "status": a.status,
                        "duration_ms": a.duration_ms,
                    }
                    for a in tried
                ],
                "tool_calls": [
                    {
                        "call_id": call.call_id, "name": call.name, "status": call.status,
                        "duration_ms": call.duration_ms, "repeat": call.repeat,
                        "is_masked": call.is_masked,
                    }
                    for call in calls
                ],
                "repeats": sum(call.repeat > 1 for call in calls),
                "cost_usd": usd(sum(a.spent_microusd for a in tried)) if is_priced else None,
            }  # fmt: skip
