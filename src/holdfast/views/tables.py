"""A story as tables: attempts of model calls, tool calls, cost per turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from holdfast.protocol.counts import counted
from holdfast.protocol.events import ModelCallCut, ModelCallFailed, ModelCallStarted, Responded, SideCallEnded
from holdfast.protocol.limits import usd
from holdfast.protocol.request import Purpose, Stretch
from holdfast.protocol.traffic import Traffic
from holdfast.protocol.trust import Flag
from holdfast.views.caching import possible_share, share_of
from holdfast.views.estimates import error_of, errors, sentence
from holdfast.views.lines import (
    FRAME,
    MASKED,
    Line,
    Span,
    iso,
    local,
    neutral,
    one_line,
    short,
    table,
    took,
)
from holdfast.views.notices import left_out
from holdfast.views.story import Attempt, Call, Run, Story, starts

STYLES = {
    "ok": "green",
    "answered": "green",
    "open": "cyan",
    "asked": "cyan",
    "waiting": "yellow",
    "cut": "yellow",
    "cancelled": "yellow",
    "refused": "magenta",
}
"""The colour of each status; others are red."""
SET: Mapping[Flag, str] = {
    "untrusted": "from here on, the session contains untrusted text",
    "private": "from here on, the session contains private data",
}
_RESULT_LINES = 4
_REQUEST_HEAD = ("#", "turn", "at", "took", "bytes", "in", "error", "cache", "out", "cost")


def status_span(status: str) -> Span:
    """Return a status in its colour."""
    return Span(status, STYLES.get(status, "red"))


def money(microusd: int | None) -> str:
    """Return an amount for people, to a hundredth of a cent; `unknown` for None."""
    return "unknown" if microusd is None else f"${microusd / 1_000_000:.4f}"


def length_of(timed: Attempt | Call) -> str:
    """Return the duration for people; empty if it is unknown."""
    return "" if timed.duration_ms is None else took(timed.duration_ms)


def counted_calls(calls: Iterable[Call]) -> str:
    """Return how many calls were started and refused: `3 tool calls (1 refused)`."""
    told = list(calls)
    refused = sum(call.status == "refused" for call in told)
    return counted(starts(told), "tool call") + (f" ({refused} refused)" if refused else "")


def counted_turns(attempts: Iterable[Attempt]) -> str:
    """Return how many turns there were. Only answered attempts count, and the last pass does not."""
    answered = (one for one in attempts if one.status == "answered" and one.is_work)
    return counted(sum(not one.started.is_last_pass for one in answered), "turn")


# --- attempts -----------------------------------------------------------------------------------


def request_lines(story: Story, width: int) -> list[Line]:
    """Return one line per attempt."""
    if not story.attempts:
        return [["No model call yet."]]
    head = [Span(name, "bold") for name in _REQUEST_HEAD]
    rows: list[list[Span | str]] = [[*head, Span("outcome", "bold")]]
    for attempt in story.attempts:
        started, usage = attempt.started, attempt.usage
        rows.append([
            str(attempt.number), _turn(started), local(attempt.at_ms, "%H:%M:%S"),
            length_of(attempt), f"{started.request.size_bytes:,}",
            short(usage.input_tokens), _error(attempt), _cache(attempt), short(usage.output_tokens),
            money(cost_of(story, attempt)),
            Span(one_line(_told(attempt), max(width, 60)), status_span(attempt.status).style),
        ])  # fmt: skip
    said = {attempt.seq: attempt.number for attempt in story.attempts}
    return [
        *table(rows, width, right=(0, 1, 3, 4, 5, 6, 7, 8, 9), drop=(6, 4, 2, 5, 8)),
        *([Span(f"request {each.number} begins anew: {each.change}", "dim")] for each in _begun_anew(story)),
        *([Span(f"from request {said[seq]} on, {text}", "yellow")] for seq, text in cuts(story).items()),
        *([Span(sentence(each), "dim")] for each in errors(story.attempts)),
    ]


def _turn(started: ModelCallStarted) -> str:
    """Return the turn; from the second attempt on with the attempt: `7.2`."""
    return f"{started.turn}.{started.attempt}" if started.attempt > 1 else str(started.turn)


def _told(attempt: Attempt) -> str:
    purpose = "" if attempt.is_work else f"{attempt.started.purpose}: "
    return purpose + outcome_of(attempt)


def _error(attempt: Attempt) -> str:
    error = error_of(attempt)
    return "" if error is None else f"{abs(error):.1%}"


def _begun_anew(story: Story) -> list[Attempt]:
    """Return the attempts after the first whose prefix changed for a reason that `cuts` does not tell."""
    told = cuts(story)
    return [each for each in story.attempts[1:] if each.change and each.seq not in told]


def _cache(attempt: Attempt) -> str:
    """Return the share of the input that was read from a cache, and the one that was possible."""
    share, possible = share_of(attempt), possible_share(attempt.started.request)
    return "" if share is None or not possible else f"{share * 100:.0f}/{possible:.0%}"


def cuts(story: Story) -> dict[int, str]:
    """Return a sentence for each request, by seq, that leaves out other records than the request before it."""
    found: dict[int, str] = {}
    before: tuple[Stretch, ...] = ()
    for attempt in story.attempts:
        if attempt.left_out != before:
            found[attempt.seq] = left_out(attempt.left_out)
        before = attempt.left_out
    return found


def request_rows(story: Story) -> Iterator[dict[str, Any]]:
    """Return every attempt as plain data."""
    for attempt in story.attempts:
        started = attempt.started
        cost = cost_of(story, attempt)
        yield {
            "number": attempt.number,
            "seq": attempt.seq,
            "run": attempt.run,
            "turn": started.turn,
            "attempt": started.attempt,
            "purpose": started.purpose,
            "at": iso(attempt.at_ms),
            "ended_at": iso(attempt.ended_ms) if attempt.ended_ms else None,
            "model": started.model,
            "status": attempt.status,
            "outcome": outcome_of(attempt),
            "size_bytes": started.request.size_bytes,
            "expected_tokens": started.request.expected_tokens,
            "estimate_error": error_of(attempt),
            "sha256": started.request.sha256,
            "left_out": [list(stretch) for stretch in attempt.left_out],
            "cache_read_share": share_of(attempt),
            "cacheable_share": possible_share(started.request),
            "prefix_change": attempt.change,
            "usage": usage_row(attempt),
            "cost_usd": None if cost is None else usd(cost),
            "held_usd": usd(attempt.held_microusd),
        }


def usage_row(attempt: Attempt) -> dict[str, int]:
    """Return all five token counts."""
    return {name: getattr(attempt.usage, name) for name in attempt.usage.__struct_fields__}


def outcome_of(attempt: Attempt) -> str:
    """Return the outcome of an attempt in a few words."""
    match attempt.outcome:
        case Responded(finish=finish, estimated=estimated):
            return f"answered ({finish})" + (f", {' and '.join(estimated)} estimated" if estimated else "")
        case ModelCallFailed(failure=failure, retry_at_ms=retry_ms):
            again = f"; retried after {took(max(retry_ms - attempt.ended_ms, 0))}" if retry_ms else ""
            return f"{failure.message}{again}"
        case ModelCallCut():
            return "cut off while it arrived"
        case SideCallEnded():
            return _of_side(attempt.outcome)
        case None:
            return "open: in progress, or its process ended"
    return "abandoned: its process ended, its cost stays reserved"


def _of_side(ended: SideCallEnded) -> str:
    if ended.failure is not None:
        return ended.failure.message + ("; tried again later" if ended.retry_at_ms else "")
    return "cut off" if ended.status == "cut" else f"answered ({ended.finish})"


def cost_of(story: Story, attempt: Attempt) -> int | None:
    """Return the cost of an attempt; None if the price of the model is unknown."""
    return attempt.spent_microusd if has_price(story, attempt.run) else None


def has_price(story: Story, run: int) -> bool:
    """Return whether the price of the run's model is known."""
    return all(known.settings.model.facts.price != "unknown" for known in story.runs if known.number == run)


# --- tool calls ---------------------------------------------------------------------------------


def call_lines(story: Story, width: int) -> Iterator[Line]:
    """Return every call with its arguments, duration and the beginning of its result."""
    if not story.calls:
        yield ["No tool call yet."]
    for call in story.calls:
        yield [
            Span(f"{call.call_id}  ", "dim"), Span(call.name, "bold"), "  ", status_span(call.status),
            Span(f"  {local(call.at_ms, '%H:%M:%S')}{_note(call)}", "dim"),
        ]  # fmt: skip
        yield [Span("    " + one_line(call.arguments, width - 4))]
        yield from label_lines(call, "    ")
        yield from result_lines(call.text, width, "    ")


def label_lines(call: Call, indent: str) -> Iterator[Line]:
    """Return what the line of a call leaves out: what its tool read, and the flags that its result set."""
    if call.origin and call.origin != call.name:
        yield [Span(f"{indent}from {one_line(call.origin, 200)}", "dim")]
    for flag in call.sets:
        yield [Span(f"{indent}{SET[flag]}", "yellow")]
    if call.traffic is not None:
        yield from _traffic_lines(call.traffic, indent)


def _traffic_lines(traffic: Traffic, indent: str) -> Iterator[Line]:
    """Return what a call asked of the network."""
    yield [Span(f"{indent}network: {traffic.told}", "dim")]
    for line in traffic.exchanged:
        yield [Span(f"{indent}  {one_line(line, 200)}", "dim")]
    if traffic.blob:
        yield [Span(f"{indent}  ... all of them: blob {traffic.blob[:12]}", "dim")]


def result_lines(text: str, width: int, indent: str) -> Iterator[Line]:
    """Return the first lines of a result, and the number of hidden lines."""
    lines = neutral(text).rstrip().split("\n") if text.strip() else []
    for line in lines[:_RESULT_LINES]:
        yield [Span(f"{indent}{FRAME}{one_line_of_code(line, width - len(indent) - 2)}", "dim")]
    if len(lines) > _RESULT_LINES:
        yield [Span(f"{indent}{FRAME}... {counted(len(lines) - _RESULT_LINES, 'more line')}", "dim")]


def one_line_of_code(line: str, width: int) -> str:
    """Cut a line to `width` cells and keep its indentation."""
    blanks = len(line) - len(line.lstrip())
    return " " * blanks + one_line(line, max(width - blanks, 8))


def _note(call: Call) -> str:
    notes = [length_of(call)] if call.duration_ms is not None else []
    notes += [f"{counted(call.attempts, 'attempt')}"] if call.attempts > 1 else []
    notes += [f"repeat {call.repeat}"] if call.repeat > 1 else []
    notes += [neutral(call.decision)] if call.decision else []
    notes += [MASKED] if call.is_masked else []
    notes += [call.trust] if call.trust is not None else []
    notes += [call.walled.backend] if call.walled is not None else []
    return "".join(f"  {note}" for note in notes)


def call_rows(story: Story) -> Iterator[dict[str, Any]]:
    """Return every call as plain data."""
    for call in story.calls:
        row = msgspec.to_builtins(call) | {
            "at": iso(call.at_ms),
            "ended_at": iso(call.ended_ms) if call.ended_ms else None,
        }
        yield {name: value for name, value in row.items() if name not in ("at_ms", "ended_ms")}


# --- money --------------------------------------------------------------------------------------


class Spent(NamedTuple):
    """The cost and tokens of one turn, or of all side calls for one purpose, by one model, and what was left then."""

    run: Run
    purpose: Purpose
    turn: int
    """0 for side calls."""
    model_calls: int
    tokens: int
    spent_microusd: int
    estimated_microusd: int
    """The part of what was spent that no provider has counted."""
    held_microusd: int
    left_microusd: int
    left_tokens: int
    model: str


def spending(story: Story) -> list[Spent]:
    """Return what each turn of each run spent, and then its side calls."""
    rows: list[Spent] = []
    for run in story.runs:
        own = [attempt for attempt in story.attempts if attempt.run == run.number]
        used, tokens = 0, 0
        so_far: dict[int, tuple[int, int]] = {}
        for attempt in own:
            used, tokens = (
                used + attempt.spent_microusd + attempt.held_microusd,
                tokens + attempt.usage.total_tokens,
            )
            so_far[attempt.number] = (used, tokens)
        # Side calls go on beside the turns. So what is left after a turn counts those that began before its end.
        work = groupby((a for a in own if a.is_work), key=lambda a: (a.started.turn, a.started.model))
        rows += [_spent(run, so_far, "work", turn, list(tried)) for (turn, _), tried in work]
        beside = sorted((a for a in own if not a.is_work), key=lambda a: (a.started.purpose, a.started.model))
        side = groupby(beside, key=lambda a: (a.started.purpose, a.started.model))
        rows += [_spent(run, so_far, purpose, 0, list(tried)) for (purpose, _), tried in side]
    return rows


def _spent(
    run: Run, so_far: Mapping[int, tuple[int, int]], purpose: Purpose, turn: int, tried: Sequence[Attempt]
) -> Spent:
    used, tokens = so_far[tried[-1].number]
    return Spent(
        run=run,
        purpose=purpose,
        turn=turn,
        model_calls=len(tried),
        tokens=sum(a.usage.total_tokens for a in tried),
        spent_microusd=sum(a.spent_microusd for a in tried),
        estimated_microusd=sum(a.spent_microusd for a in tried if a.is_estimated),
        held_microusd=sum(a.held_microusd for a in tried),
        left_microusd=run.settings.limits.cost_microusd - used,
        left_tokens=run.settings.limits.tokens - tokens,
        model=tried[0].started.model,
    )


def cost_lines(story: Story, width: int) -> list[Line]:
    """Return a table of turns for each run, with a forecast for an open run."""
    rows = spending(story)
    lines: list[Line] = []
    for run, group in groupby(rows, key=lambda row: row.run):
        spent = list(group)
        is_priced = has_price(story, run.number)
        head = [
            Span(name, "bold") for name in ("turn", "tries", "tokens", "spent", "held", "left", "tokens left")
        ]
        cells: list[Sequence[Span | str]] = [head]
        for row in spent:
            amounts = (row.spent_microusd, row.held_microusd, row.left_microusd)
            shown = [money(amount if is_priced else None) for amount in amounts]
            shown[0] = f"about {shown[0]}" if is_priced and row.estimated_microusd else shown[0]
            cells.append(
                [
                    str(row.turn or row.purpose),
                    str(row.model_calls),
                    short(row.tokens),
                    *shown,
                    short(row.left_tokens),
                ]
            )
        title = f"run {run.number}  {run.settings.model.facts.name}"
        lines += [
            [Span(title, "bold")],
            *table(cells, width, right=range(7), drop=(1, 4, 6)),
            *_totals(run, spent, is_priced),
            [""],
        ]
    return lines[:-1] or [["No cost yet."]]


def _totals(run: Run, spent: Sequence[Spent], is_priced: bool) -> Iterator[Line]:
    limits = run.settings.limits
    total, held = sum(row.spent_microusd for row in spent), sum(row.held_microusd for row in spent)
    tokens = sum(row.tokens for row in spent)
    if not is_priced:
        yield [
            Span("Cost unknown: ", "yellow"),
            f"there is no price for {run.settings.model.facts.name}. The token limit still counts.",
        ]
        yield [f"total {tokens:,} of {counted(limits.tokens, 'token')}"]
        return
    held_note = f", {money(held)} reserved for model calls with an unknown outcome" if held else ""
    about = "about " if any(row.estimated_microusd for row in spent) else ""
    paid = f"{about}{money(total)} of {money(limits.cost_microusd)}{held_note}"
    yield [f"total {paid}; {tokens:,} of {counted(limits.tokens, 'token')}"]
    forecast = forecast_turns(run, spent)
    if forecast is not None and run.stopped is None:
        mean = money(total // max(sum(row.turn > 0 for row in spent), 1))
        reach = (
            f"enough for about {counted(forecast, 'more turn')}"
            if forecast
            else "not enough for one more turn"
        )
        yield [
            Span(
                f"At {mean} per turn, the rest is {reach}. The limit is {counted(limits.turns, 'turn')}.",
                "cyan",
            )
        ]


def forecast_turns(run: Run, spent: Sequence[Spent]) -> int | None:
    """Return how many more turns the rest of the money allows at the mean cost; None if turns are free."""
    total = sum(row.spent_microusd for row in spent)
    turns = [row for row in spent if row.turn]
    return min(row.left_microusd for row in spent) * len(turns) // total if total else None


def cost_rows(story: Story) -> Iterator[dict[str, Any]]:
    """Return the cost of each turn as plain data; null if there is no price."""
    by_run: dict[int, list[Spent]] = {}
    for row in spending(story):
        so_far = by_run.setdefault(row.run.number, [])
        so_far.append(row)
        is_priced = has_price(story, row.run.number)
        amounts = {
            "spent_usd": row.spent_microusd, "estimated_usd": row.estimated_microusd,
            "held_usd": row.held_microusd, "left_usd": row.left_microusd,
        }  # fmt: skip
        yield {
            "run": row.run.number,
            "turn": row.turn or None,
            "purpose": row.purpose,
            "model": row.model,
            "model_calls": row.model_calls,
            "tokens": row.tokens,
            **{name: usd(amount) if is_priced else None for name, amount in amounts.items()},
            "left_tokens": row.left_tokens,
            "forecast_turns": forecast_turns(row.run, so_far) if is_priced else None,
        }
