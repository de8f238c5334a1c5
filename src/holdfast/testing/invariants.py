"""What must be true of every journal, whatever happened to its writers, as checks that raise.

`conversation` returns what two journals of the same story have in common, without attaches, attempts, epochs and
times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.context.requests import attached, body_of, requests
from holdfast.context.transcript import Transcript
from holdfast.core.evolve import evolve, fold
from holdfast.core.state import Done, State, open_model_calls
from holdfast.core.summary import summary
from holdfast.core.tool_calls import DONE_BEFORE
from holdfast.protocol import events as e
from holdfast.protocol.messages import Message, ToolResult, calls_of
from holdfast.protocol.ports import Store
from holdfast.protocol.rows import Verified
from holdfast.providers.openai import Dialect, OpenAIWire
from holdfast.runtime.enclosing import contents_of, fill
from holdfast.runtime.fold import Fold

ANY = "(not compared)"
_OUTCOMES = (e.ToolCallFinished, e.ToolCallRefused, e.ToolCallAbandoned)


async def check_session(store: Store, session: str, records: Sequence[e.Record]) -> None:
    """Check everything that must be true of a session at rest and its rows in the store."""
    check_journal(records)
    row = await store.session(session)
    expected = summary(fold(list(records)))
    assert row == expected, f"the row does not match the journal: {row} {expected}"
    booked = await store.spent(session=session)
    assert row.held_microusd == booked.held, "the books hold another amount"
    assert row.cost_microusd in (None, booked.spent), "the books have another amount"
    assert not await store.inbox(session), "a command was accepted and never handled"
    situation = await store.situation(session)
    lease = situation.lease if situation is not None else None
    assert lease is None or not lease.left_ms, "the lease was not given back"
    await check_snapshot(store, session, records)
    assert await store.verify() == Verified()
    for sent in requests(records, await contents_of(store.blobs, attached(records))):
        body_of(sent, await store.blobs.get(sent.started.request.base))


async def check_snapshot(store: Store, session: str, records: Sequence[e.Record]) -> None:
    """Check that the last snapshot leads to the same state as folding everything."""
    opened = Fold(session)
    await opened.open(store)
    folded = Fold(session)
    folded.load(await store.read(session))
    assert opened.state == folded.state == fold(list(records))
    assert opened.wire == folded.wire
    for each in (opened, folded):
        await fill(each.conversation, store.blobs)
    wire = OpenAIWire("openai", Dialect())
    first, second = (each.conversation.render(wire, b"[") for each in (opened, folded))
    for name in ("keep", "rest"):
        assert getattr(first, name) == getattr(second, name), f"the {name} of the next request differs"
    assert first.body(b"") == second.body(b"")


def check_journal(records: Sequence[e.Record]) -> None:
    """Check intents, outcomes, runs and money."""
    check_intents(records)
    check_outcomes(records)
    check_runs(records)
    check_obedience(records)
    check_money(records)


def check_intents(records: Iterable[e.Record]) -> None:
    """Check that only the last attached driver starts anything, that a call has one open attempt at a time, and that
    only what may be repeated has a second attempt.
    """
    epoch, open_keys = 0, {"work": "", "side": ""}
    tried: dict[str, e.ToolCallStarted] = {}
    for record in records:
        match record.event:
            case e.SessionForked():  # a branch counts its epochs from the start
                epoch, tried = 0, {call_id: replace(intent, epoch=0) for call_id, intent in tried.items()}
            case e.Attached(epoch=taken):
                assert taken > epoch, f"record {record.seq}: epochs must rise"
                epoch = taken
            case e.ModelCallStarted(key=key, epoch=by):
                assert by == record.epoch == epoch, f"record {record.seq}: an intent of another epoch"
                line = _line(record.event)
                assert not open_keys[line], f"record {record.seq}: {open_keys[line]} is still open"
                open_keys[line] = key
            case (
                e.Responded()
                | e.ModelCallFailed()
                | e.ModelCallCut()
                | e.ModelCallAbandoned()
                | e.SideCallEnded()
            ) as ended:
                line = _line(ended)
                assert ended.key == open_keys[line], f"record {record.seq}: an outcome of nothing"
                open_keys[line] = ""
            case e.RunStopped():
                assert not any(open_keys.values()), f"record {record.seq}: a model call is still open"
            case e.ToolCallStarted(call_id=call_id, epoch=by, attempt=attempt) as started:
                assert by == record.epoch == epoch, f"record {record.seq}: an intent of another epoch"
                before = tried.get(call_id)
                assert attempt == (before.attempt + 1 if before else 1), f"record {record.seq}: {attempt}"
                if before is not None:
                    assert before.on_interrupt != "unknown", f"record {record.seq}: repeated without a look"
                    assert before.epoch < by, f"record {record.seq}: repeated by the same driver"
                tried[call_id] = started
            case _:
                pass


def _line(event: e.Event) -> str:
    """Return on which of the two lines of model calls an event is: at most one call is open on each."""
    return "work" if getattr(event, "purpose", "work") == "work" else "side"


def check_outcomes(records: Sequence[e.Record]) -> None:
    """Check that every call of a model has exactly one result before the next request."""
    ended = Counter(r.event.call_id for r in records if isinstance(r.event, _OUTCOMES))
    asked = [c.call_id for r in records if isinstance(r.event, e.Responded) for c in calls_of(r.event.parts)]
    assert len(set(asked)) == len(asked), "two calls have the same id"
    still_open = {call.call_id for call in fold(list(records)).turn.calls if not isinstance(call.stage, Done)}
    assert {c: ended[c] for c in asked} == {c: int(c not in still_open) for c in asked}
    assert set(ended) <= set(asked)


def check_runs(records: Sequence[e.Record]) -> None:
    """Check that runs do not overlap, are numbered, and each end in exactly one terminal record."""
    story = [r.event for r in records if isinstance(r.event, e.RunStarted | e.RunStopped)]
    for number, event in enumerate(story):
        kind = e.RunStarted if number % 2 == 0 else e.RunStopped
        assert isinstance(event, kind), f"{event} is where a {kind.__name__} must be"
        assert event.run == number // 2 + 1


def check_obedience(records: Iterable[e.Record]) -> None:
    """Check that nothing starts while the run is paused, is about to end, or is missing."""
    is_open, is_paused = False, False
    for record in records:
        match record.event:
            case e.RunStarted():
                is_open, is_paused = True, False
            case e.RunStopping() | e.RunStopped():
                is_open = False
            case e.RunPaused():
                is_paused = True
            case e.RunResumed():
                is_paused = False
            case e.ModelCallStarted() | e.ToolCallStarted():
                assert is_open, f"record {record.seq}: started without an open run"
                assert not is_paused, f"record {record.seq}: started during a pause"
            case _:
                pass


def check_money(records: Iterable[e.Record]) -> None:
    """Check that the money and tokens spent, held and reserved never exceed the run's limits."""
    state = State()
    for record in records:
        state = evolve(state, record)
        if state.run is None or state.settings is None:
            continue
        totals, limits, calls = state.run.totals, state.settings.limits, open_model_calls(state)
        reserved = sum(call.reserved_microusd for call in calls)
        if state.settings.model.facts.price == "known":
            assert totals.cost_microusd + totals.held_microusd + reserved <= limits.cost_microusd, record.seq
        tokens = sum(call.reserved_tokens for call in calls)
        assert totals.usage.total_tokens + totals.held_tokens + tokens <= limits.tokens, record.seq


def ended(records: Iterable[e.Record]) -> list[tuple[str, str]]:
    """Return (status, reason) of every run, in order."""
    return [(r.event.status, r.event.reason) for r in records if isinstance(r.event, e.RunStopped)]


def in_flight(records: Iterable[e.Record]) -> dict[str, e.ToolCallStarted]:
    """Return the tool calls whose intent has no outcome in these records."""
    found: dict[str, e.ToolCallStarted] = {}
    for record in records:
        if isinstance(record.event, e.ToolCallStarted):
            found[record.event.call_id] = record.event
        elif isinstance(record.event, _OUTCOMES):
            found.pop(record.event.call_id, None)
    return found


def abandoned(records: Iterable[e.Record]) -> set[str]:
    """Return the calls with an unknown outcome."""
    return {r.event.call_id for r in records if isinstance(r.event, e.ToolCallAbandoned)}


def found_done(records: Iterable[e.Record]) -> set[str]:
    """Return the calls that a probe showed to have happened."""
    return {
        r.event.call_id
        for r in records
        if isinstance(r.event, e.ToolCallFinished) and r.event.result.text == DONE_BEFORE
    }


def conversation(records: Iterable[e.Record], but: Collection[str] = ()) -> list[Any]:
    """Return what was said, asked, decided and ended, in order, without the results of the calls in `but`, without
    what the model was told about a driver that may still live, and without the time before a person's words.
    """
    transcript, told = Transcript(), []
    for record in records:
        if is_of_rival(record.event):
            continue
        told += [_plain(said.message, but) for said in transcript.add(_timeless(record))]
        match record.event:
            case e.RunStarted(run=run, is_continuation=goes_on):
                told.append(("run", run, goes_on))
            case e.RunStopped(run=run, status=status, reason=reason):
                told.append(("end", run, status, reason))
            case e.ApprovalRequested(call_id=call_id, arguments=arguments, question=question):
                told.append(("ask", call_id, arguments, question))
            case e.ApprovalResolved(decision=decision, note=note):
                told.append(("answer", decision, note))
            case e.SettingsChanged(settings=settings):
                told.append(("settings", settings))
            case _:
                pass
    return told


def _timeless(record: e.Record) -> e.Record:
    """Return the record; words of a person without their time, which is later after a crash."""
    event = record.event
    return replace(record, event=replace(event, head="")) if isinstance(event, e.MessageReceived) else record


def is_of_rival(event: e.Event) -> bool:
    """Return whether it warns of the previous driver, which may still live."""
    return isinstance(event, e.NoteAdded) and event.about == "takeover"


def _plain(message: Message, but: Collection[str]) -> tuple[Any, ...]:
    parts = [
        (part.call_id, ANY) if isinstance(part, ToolResult) and part.call_id in but else part
        for part in message.parts
    ]
    # The trust of a mixture may depend on the part that is left out.
    return (message.role, ANY if tuple(parts) != message.parts else message.trust, *parts)
