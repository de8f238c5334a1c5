"""Side calls in the real loop: what is stored of them, and what the work does meanwhile."""

from __future__ import annotations

from pathlib import Path

from holdfast.protocol import events as e
from holdfast.protocol.limits import Limits
from holdfast.protocol.ports import Store
from holdfast.testing.clock import JumpingClock
from holdfast.testing.invariants import check_session, ended
from holdfast.testing.scenarios import Played, Scenario, play
from tests.scenarios.scenes import DONE, call, calls, judged, tools_of, used
from tests.scenarios.stage import Stage

SECRET = "sk-ant-api03-" + "A1b2C3d4" * 12


def run(stage: Stage, scenario: Scenario) -> Played:
    async def main(clock: JumpingClock, store: Store, workspace: Path) -> Played:
        played = await play(scenario, clock, store, workspace)
        await check_session(store, played.session, played.records)
        return played

    return stage.run(main)


def looks(count: int, **more: object) -> list[dict[str, object]]:
    return [calls(call("look", name=str(number)), delay_s=0.5, **more) for number in range(count)]


def sides(played: Played) -> list[e.SideCallEnded]:
    return [r.event for r in played.records if isinstance(r.event, e.SideCallEnded)]


def test_a_secret_in_the_answer_of_a_side_call_is_masked_and_the_record_says_so(volatile: Stage) -> None:
    line = {"text": f"The key is {SECRET}.", "purpose": "reflection"}
    settings = {"reflect_turns": 1, "max_reflections": 1}
    played = run(volatile, Scenario("masked", [*looks(3), DONE, line], tools_of, settings=settings))
    (ended_,) = sides(played)
    assert ended_.is_masked
    assert SECRET not in str(played.records)
    notes = [r.event.text for r in played.records if isinstance(r.event, e.NoteAdded)]
    assert len(notes) == 1
    assert "[redacted" in notes[0]


def test_the_work_goes_on_while_a_side_call_is_open(volatile: Stage) -> None:
    settings = {"reflect_turns": 1, "max_reflections": 1}
    lines = [*looks(6), DONE, judged("continue", delay_s=2.2)]
    played = run(volatile, Scenario("beside", lines, tools_of, settings=settings))
    names = [type(r.event).__name__ for r in played.records]
    started = next(i for i, r in enumerate(played.records) if getattr(r.event, "purpose", "work") != "work")
    assert names[started : names.index("SideCallEnded")].count("Responded") >= 2


def test_a_run_that_is_done_does_not_wait_for_its_side_call(volatile: Stage) -> None:
    settings = {"reflect_turns": 1, "max_reflections": 1}
    lines = [*looks(1), DONE, judged("stop", delay_s=60.0)]
    played = run(volatile, Scenario("cancelled", lines, tools_of, settings=settings))
    assert ended(played.records) == [("done", "answer")]
    assert [each.status for each in sides(played)] == ["cut"]
    assert played.records[-1].at_ms - played.records[0].at_ms < 10_000


def test_a_side_call_leaves_the_work_another_call_and_a_last_pass(volatile: Stage) -> None:
    """However tight the limit is: the next call of the work starts, and it is not the last pass."""
    lines = [
        *[calls(call("look", name=str(n)), delay_s=0.1, usage=used(2_000, 20)) for n in range(2)],
        {**DONE, "usage": used(2_100, 20)},
        judged("continue", delay_s=5.0, usage=used(2_000, 20)),
    ]
    settings, asked = {"reflect_turns": 1, "max_reflections": 1}, []
    for tokens in range(6_000, 26_000, 500):
        played = run(
            volatile, Scenario("tight", lines, tools_of, settings=settings, limits=Limits(tokens=tokens))
        )
        starts = [r.event for r in played.records if isinstance(r.event, e.ModelCallStarted)]
        places = [place for place, each in enumerate(starts) if each.purpose != "work"]
        asked.append(len(places))
        assert all(not starts[place + 1].is_last_pass for place in places), tokens
    assert (asked[0], asked[-1]) == (0, 1)
