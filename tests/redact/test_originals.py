"""The originals of masked calls: held while the call is open, by one process, up to a bound."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.core.state import Call, Done, Proposed, State, Turn
from holdfast.protocol.events import Record, ToolCallFinished, Trigger
from holdfast.protocol.failures import Failure
from holdfast.protocol.hooks import CHANGED, HOOK
from holdfast.protocol.tools import (
    Allowed,
    Asked,
    CallResult,
    Decision,
    Expectation,
    FileChange,
    Files,
    IdempotencyKey,
    Refused,
)
from holdfast.redact import make_redactor
from holdfast.runtime import originals as module
from holdfast.runtime.masking import masked_copy
from holdfast.runtime.originals import Originals

redact = make_redactor()
SECRET = "Tr0ub4dor" + "-and-3"
WRITTEN = f'{{"content":"password = \\"{SECRET}\\""}}'


def holding(*call_ids: str, written: str = WRITTEN) -> Originals:
    originals = Originals(redact)
    for call_id in call_ids:
        originals.keep("s", call_id, written, masked_copy(written, redact))
    return originals


def masked(call_id: str) -> Call:
    return Call(call_id, "", "write_file", masked_copy(WRITTEN, redact).text, is_masked=True)


@pytest.mark.requirement("A4", "C3")
def test_an_original_is_held_for_its_session_and_call_only() -> None:
    originals = holding("t1.c1")
    original = originals.of("s", masked("t1.c1"))
    assert original is not None
    assert original.arguments == WRITTEN
    assert originals.of("s", masked("t1.c2")) is None
    assert originals.of("branch", masked("t1.c1")) is None
    plain = Call("t9.c9", "", "shell", '{"command":"ls"}')
    original = originals.of("s", plain)
    assert original is not None
    assert original.arguments == plain.arguments


@pytest.mark.requirement("A4", "C3")
def test_an_original_is_given_up_with_the_end_of_its_call() -> None:
    originals = holding("t1.c1", "t1.c2")
    ended = ToolCallFinished("t1.c1", CallResult("ok", ""))
    originals.note("s", [Record("s", 1, 1, 1, Trigger("outcome"), ended)])
    assert originals.of("s", masked("t1.c1")) is None
    assert originals.of("s", masked("t1.c2")) is not None


@pytest.mark.requirement("A4", "C3")
def test_where_nobody_drives_only_open_calls_keep_their_originals() -> None:
    originals = holding("t1.c1", "t1.c2", "t2.c1")
    calls = (Call("t1.c1", "", "x", "{}", stage=Done("")), Call("t1.c2", "", "x", "{}", stage=Proposed()))
    originals.keep_open(State(session="s", turn=Turn(1, calls)))
    assert [originals.of("s", masked(each)) is None for each in ("t1.c1", "t1.c2", "t2.c1")] == [
        True,
        False,
        True,
    ]


@pytest.mark.requirement("A3", "A4")
def test_more_originals_than_there_is_room_for_give_up_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HELD_CHARS", 2 * len(WRITTEN))
    originals = holding("t1.c1", "t1.c2", "t1.c2", "t1.c3")
    assert [originals.of("s", masked(f"t1.c{n}")) is None for n in (1, 2, 3)] == [True, False, False]


@pytest.mark.requirement("A4", "C3", "H5")
def test_what_gates_say_is_masked_and_sealed_with_a_key_of_the_process() -> None:
    seals = []
    for originals in (holding("t1.c1"), holding("t1.c1")):
        call = masked("t1.c1")
        original = originals.of("s", call)
        assert original is not None
        said = (Decision("policy", "ask", reason=f"it runs {SECRET}"),)
        asked = originals.masked("s", call, original, Asked(said, WRITTEN, binary=f"/bin/{SECRET}"))
        again = originals.masked("s", call, original, Asked(said, WRITTEN, binary=f"/bin/{SECRET}"))
        other = originals.masked("s", call, original, Asked(said, WRITTEN.replace("and", "AND")))
        assert isinstance(asked, Asked)
        assert isinstance(other, Asked)
        assert SECRET not in repr(asked)
        assert asked == again
        assert asked.seal != other.seal
        seals.append(asked.seal)
    assert seals[0] != seals[1]


@pytest.mark.requirement("A4", "C3", "H5")
@pytest.mark.parametrize(
    "untold",
    [
        Files((FileChange("a.txt", "", "0" * 64),)),
        Files((FileChange(f"{SECRET}.txt", "", "0" * 64),), is_marked=True),
        IdempotencyKey("k"),
        None,
    ],
)
def test_a_masked_call_that_may_start_leaves_no_hash_that_tells_anything(untold: Expectation | None) -> None:
    originals, call = holding("t1.c1"), masked("t1.c1")
    original = originals.of("s", call)
    assert original is not None
    allowed = Allowed(arguments=f" {WRITTEN}", on_interrupt="probe", expects=untold)
    safe = originals.masked("s", call, original, allowed)
    assert isinstance(safe, Allowed)
    assert (safe.expects, safe.on_interrupt) == (None, "unknown")
    assert SECRET not in repr(safe)
    held = originals.of("s", call)
    assert held is not None
    assert held.arguments == f" {WRITTEN}", "it runs what the gates let pass"
    marked = Files((FileChange("a.txt", "", "0" * 64),), is_marked=True)
    safe = originals.masked("s", call, original, replace(allowed, expects=marked))
    assert isinstance(safe, Allowed)
    assert (safe.expects, safe.on_interrupt) == (marked, "probe")
    refused = originals.masked("s", call, original, Refused(Failure("tool_validation", f"no {SECRET}")))
    assert refused == Refused(Failure("tool_validation", "no [redacted:secret]"))


@pytest.mark.requirement("S4", "A4")
def test_after_a_hook_changed_a_masked_call_what_the_model_wrote_is_judged_again() -> None:
    """Otherwise the hook would change a second time what it has changed."""
    originals, call = holding("t1.c1"), masked("t1.c1")
    for decisions, written in (((Decision(HOOK, "allow", "hook:a", CHANGED),), WRITTEN), ((), "")):
        original = originals.of("s", call)
        assert original is not None
        originals.masked("s", call, original, Allowed(decisions, f" {WRITTEN}"))
        held = originals.of("s", call)
        assert held is not None
        assert (held.arguments, held.written) == (f" {WRITTEN}", written)
