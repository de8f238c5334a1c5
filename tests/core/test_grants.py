"""Approvals that last: made with a decision, used by later calls, and over at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.core.state import open_run
from holdfast.core.summary import summary
from holdfast.protocol import events as e
from holdfast.protocol.commands import Resolve, Revoke
from holdfast.protocol.grants import MOST_KEPT, MOST_USES, Grant, permission_of
from holdfast.protocol.rows import GrantRow
from holdfast.protocol.tools import Content, Decision, Offer, Reach
from tests.core.stories import SESSION, Story, call, kinds, only, proposing, steps, words

ASK = (Decision("policy", "ask", "autonomy:supervised", "Running commands needs approval."),)
OFFER = Offer("shell(make test)")
PROGRAMS = (Content("/bin/make", "0" * 64),)
COMMAND = call("shell", '{"command":"make test"}')
HALF_A_DAY_S = 43_200


def offered(**changes: Any) -> Story:
    """A call that waits, whose approval may make a grant."""
    story = proposing(COMMAND)
    found = {"decisions": ASK, "source": "builtin", "offer": OFFER, "reach": Reach(programs=PROGRAMS)}
    story.asked_for("t1.c1", **found | changes)
    return story


def resolve(story: Story, decision: Any = "approve") -> list[e.Event]:
    return story.command(Resolve(story.asked().approval_id, decision, makes_grant=True))


def granted() -> Story:
    """The next turn after a call whose approval made a grant."""
    story = offered()
    resolve(story)
    story.admitted("t1.c1")
    story.finished("t1.c1")
    return same_call(story)


def same_call(story: Story) -> Story:
    story.prepared()
    story.answered(COMMAND, finish="tool_calls")
    return story


def covered(story: Story, call_id: str = "t2.c1") -> list[e.Event]:
    """The gates have found that the grant covers the call."""
    return story.admitted(call_id, decisions=(*ASK, permission_of(story.state.grants[0])))


@pytest.mark.requirement("S6")
def test_an_approval_may_make_a_grant_that_says_what_it_covers_and_until_when() -> None:
    story = offered()
    events = resolve(story)
    until_ms = story.now_ms + HALF_A_DAY_S * 1_000
    name = f"{SESSION}-g1"
    grant = Grant(name, "shell", OFFER, until_ms, MOST_USES, "builtin", "w", PROGRAMS)
    assert events[1:] == [e.GrantMade(f"{SESSION}-1", grant, "cli:ann")]
    assert summary(story.state).grants == (GrantRow(name, "shell", "shell(make test)", until_ms),)
    assert kinds(story.admitted("t1.c1")) == ["ApprovalConsumed", "ToolCallStarted"]


@pytest.mark.requirement("S6")
@pytest.mark.parametrize("decision", ["deny", "answer"])
def test_only_an_approval_makes_a_grant(decision: str) -> None:
    story = offered()
    assert resolve(story, decision) == []
    assert kinds(story.resolve("deny"))[0] == "ApprovalResolved"


@pytest.mark.requirement("S6")
def test_where_no_grant_is_offered_asking_for_one_decides_nothing() -> None:
    story = offered(offer=None, no_offer="`sh` runs whatever it is given.")
    assert resolve(story) == []
    assert story.asked().approval_id == f"{SESSION}-1"
    assert kinds(story.resolve("approve")) == ["ApprovalResolved"]


@pytest.mark.requirement("S6")
def test_a_call_that_a_grant_covers_starts_and_takes_one_of_its_uses() -> None:
    story = granted()
    assert kinds(covered(story)) == ["ToolCallStarted"]
    assert story.state.grants[0].uses == MOST_USES - 1


@pytest.mark.requirement("S6", "H5")
@pytest.mark.parametrize("how", ["time", "revoked"])
def test_a_grant_that_ends_while_the_gates_judge_covers_nothing(how: str) -> None:
    story = granted()
    grant = story.state.grants[0]
    step = steps(story.state)[0]
    if how == "time":
        story.asleep(HALF_A_DAY_S)
        asked = only(e.ApprovalRequested, covered(story))
        assert asked.lapsed == grant
        assert asked.decisions == ASK
        assert story.state.grants == ()
    else:
        story.command(Revoke(grant.id))
        assert step not in steps(story.state), "what the gates find without the grant is another step"


@pytest.mark.requirement("S6", "H5")
def test_the_first_question_after_a_grant_has_ended_says_so_and_no_later_one() -> None:
    story = granted()
    grant = story.state.grants[0]
    story.asleep(HALF_A_DAY_S)
    asked = only(e.ApprovalRequested, story.asked_for("t2.c1", decisions=ASK, offer=OFFER, lapsed=grant.id))
    assert asked.lapsed == grant
    story.resolve("approve")
    story.admitted("t2.c1", decisions=(*ASK, Decision("approval", "allow")))
    story.finished("t2.c1")
    same_call(story)
    again = only(e.ApprovalRequested, story.asked_for("t3.c1", decisions=ASK, offer=OFFER, lapsed=grant.id))
    assert again.lapsed is None


@pytest.mark.requirement("S6")
def test_a_grant_is_revoked_once_and_covers_nothing_from_then_on() -> None:
    story = granted()
    name = story.state.grants[0].id
    assert story.command(Revoke("nobody-g1")) == []
    assert story.command(Revoke(name)) == [e.GrantRevoked(name, "cli:ann")]
    assert story.command(Revoke(name)) == []
    assert (story.state.grants, summary(story.state).grants) == ((), ())


@pytest.mark.requirement("S6")
def test_a_grant_that_is_used_up_is_not_listed_and_the_next_question_tells_of_it() -> None:
    story = granted()
    used_up = msgspec.structs.replace(story.state.grants[0], uses=1)
    story.state = msgspec.structs.replace(story.state, grants=(used_up,))
    covered(story)
    assert not story.state.grants[0].is_live(story.now_ms)
    assert summary(story.state).grants == ()


@pytest.mark.requirement("S6")
def test_a_grant_takes_the_place_of_one_for_the_same_calls_and_of_the_oldest_of_many() -> None:
    story = granted()
    (first,) = story.state.grants
    other = msgspec.structs.replace(first, id="again", programs=(Content("/bin/make", "1" * 64),))
    story.given(e.GrantMade("a", other, "cli:ann"))
    assert story.state.grants == (other,)
    for number in range(MOST_KEPT + 5):
        one = msgspec.structs.replace(first, id=f"g{number}", offer=Offer(f"shell(make {number})"))
        story.given(e.GrantMade("a", one, "cli:ann"))
    assert [each.id for each in story.state.grants] == [f"g{number}" for number in range(5, MOST_KEPT + 5)]


@pytest.mark.requirement("S6", "H5")
@pytest.mark.parametrize(
    "event", [e.SessionForked("b", SESSION, 3), e.SessionImported()], ids=lambda each: type(each).__name__
)
def test_neither_a_branch_nor_an_imported_session_has_the_grants_of_the_one_it_comes_from(
    event: e.Event,
) -> None:
    story = granted()
    assert story.given(event).state.grants == ()


@pytest.mark.requirement("S6")
def test_grants_outlive_the_run_in_which_they_were_made() -> None:
    story = granted()
    covered(story)
    story.finished("t2.c1")
    story.prepared()
    story.answered(words())
    assert open_run(story.state) is None
    story.send("More.")
    assert open_run(story.state) is not None
    assert [each.id for each in story.state.grants] == [f"{SESSION}-g1"]
