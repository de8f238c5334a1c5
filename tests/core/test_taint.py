"""The two flags of a session: which records set them, and what keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.context.transcript import Transcript
from holdfast.core.evolve import evolve, fold
from holdfast.core.wanted import Admit, wanted
from holdfast.protocol import events as e
from holdfast.protocol.commands import Send
from holdfast.protocol.messages import Attachment, ToolResult
from holdfast.protocol.prompt import Section
from holdfast.protocol.tools import CallResult, Decision
from holdfast.protocol.trust import CLEAN, Mark, Taint
from tests.core.stories import GIVEN, Story, call, opened, proposing, words

ASKS = Decision("taint", "ask", "taint:query", "It sends.", covers="host:a.example")


def result(origin: str, **fields: Any) -> CallResult:
    return CallResult("ok", "x", origin=origin, **fields)


def read(story: Story, *results: CallResult) -> Story:
    """A turn with these results."""
    if story.state.models.open is None:
        story.prepared()
    story.answered(*(call("read_file") for _ in results), finish="tool_calls")
    for number, each in enumerate(results, 1):
        call_id = f"t{story.state.turn.number}.c{number}"
        story.admitted(call_id)
        story.given(e.ToolCallFinished(call_id, each))
    return story


@pytest.mark.requirement("C14", "H4")
@pytest.mark.parametrize(
    ("given", "untrusted", "private"),
    [
        (result("web_fetch a.example", trust="untrusted"), True, False),
        (result("read_file", trust="data"), False, True),
        (result("write_file", trust="data", is_private=False), False, False),
        (result("read_file", trust="untrusted", is_private=True), True, True),
        (result("user", trust="user"), False, False),
        (result("holdfast", trust="data", is_private=False), False, False),
    ],
)
def test_a_result_sets_the_flags_that_it_brings(given: CallResult, untrusted: bool, private: bool) -> None:
    story = read(opened(), given)
    mark = Mark(story.state.seq, given.origin)
    assert story.state.taint == Taint(mark if untrusted else None, mark if private else None)


@pytest.mark.requirement("H4")
def test_the_first_record_that_sets_a_flag_stays_its_mark() -> None:
    web, file = result("web", trust="untrusted"), result("read_file", trust="data")
    story = read(opened(), file)
    private = story.state.taint.private
    assert private == Mark(story.state.seq, "read_file")
    read(story, file, web)
    assert story.state.taint == Taint(Mark(story.state.seq, "web"), private)
    before = story.state.taint
    read(story, web, file)
    assert story.state.taint is before


@pytest.mark.requirement("H4")
def test_what_a_person_attached_is_not_private_and_untrusted_only_if_it_says_so() -> None:
    story = opened()
    story.command(Send("Look.", story.settings, (Attachment("file", "a", "text/plain", 1, "b"),)))
    assert story.state.taint == CLEAN
    strange = Attachment("file", "clone/README", "text/plain", 1, "b", trust="untrusted")
    story.command(Send("Look.", story.settings, (strange,)))
    assert story.state.taint == Taint(untrusted=Mark(story.state.seq, "clone/README"))


@pytest.mark.requirement("H4")
def test_a_prompt_with_untrusted_files_sets_the_flag() -> None:
    sections = [
        Section("workspace", "AGENTS.md", "s", 1, "it is there", trust) for trust in ("data", "untrusted")
    ]
    for section in sections:
        story = opened().given(e.PromptBuilt("a run opened", (section,), "p"))
        is_untrusted = section.trust == "untrusted"
        assert story.state.taint == (Taint(Mark(story.state.seq, "AGENTS.md")) if is_untrusted else CLEAN)


@pytest.mark.requirement("H4")
def test_a_record_from_before_the_flags_sets_them_by_its_trust() -> None:
    """Such a record names no origin, and is private if it is data."""
    story = read(opened(), CallResult("ok", "x", trust="data"))
    assert story.state.taint.private == Mark(story.state.seq, "")


@pytest.mark.requirement("C14")
def test_each_result_of_a_turn_carries_its_own_origin_and_trust() -> None:
    story = read(
        opened(), result("web_fetch a.example", trust="untrusted"), result("read_file", trust="data")
    )
    transcript = Transcript()
    said = [each.message for record in story.records for each in transcript.add(record)]
    parts = [part for part in said[-1].parts if isinstance(part, ToolResult)]
    assert [(part.origin, part.trust) for part in parts] == [
        ("web_fetch a.example", "untrusted"), ("read_file", "data"),
    ]  # fmt: skip
    assert said[-1].trust == "untrusted"
    head, _, text = parts[0].text.partition("\n")
    assert text == "x"
    assert "web_fetch a.example, untrusted" in head
    assert parts[1].text == "x"


@pytest.mark.requirement("H4")
def test_a_fork_and_an_import_keep_the_flags_and_forget_what_approvals_cover() -> None:
    story = read(opened(), result("web", trust="untrusted"), result("read_file", trust="data"))
    approved(story)
    assert story.run.covered == ("host:a.example",)
    for event in (e.SessionForked("b", "a", story.state.seq), e.SessionImported()):
        record = e.Record("b", story.state.seq + 1, story.now_ms, 0, GIVEN, event)
        after = evolve(story.state, record)
        assert after.taint == story.state.taint != CLEAN
        assert after.run is not None
        assert after.run.covered == ()


def approved(story: Story) -> None:
    """A person says yes to a call, and it starts."""
    story.prepared()
    story.answered(call("web_fetch"), finish="tool_calls")
    call_id = f"t{story.state.turn.number}.c1"
    story.asked_for(call_id, decisions=(ASKS,))
    before = story.run.covered
    story.resolve("approve")
    assert story.run.covered == before, "nothing is covered before the yes is used"
    story.admitted(call_id)
    story.finished(call_id)


@pytest.mark.requirement("H4", "H5")
def test_what_an_approval_covers_ends_with_its_run() -> None:
    story = opened()
    approved(story)
    approved(story)
    assert story.run.covered == ("host:a.example",)
    assert fold(story.records).run == story.run
    story.prepared()
    story.answered(words())
    assert story.run.status == "done"
    story.send()
    assert story.run.covered == ()


@pytest.mark.requirement("H5")
def test_a_denied_approval_covers_nothing() -> None:
    story = proposing(call("web_fetch"))
    story.asked_for("t1.c1", decisions=(ASKS,))
    story.resolve("deny")
    assert story.run.covered == ()


@pytest.mark.requirement("H4")
def test_a_judgement_by_older_flags_does_not_count() -> None:
    story = proposing(call("read_file"), call("read_file"))
    story.admitted("t1.c1")
    (before,) = [each for each in wanted(story.state) if isinstance(each, Admit)]
    story.given(e.ToolCallFinished("t1.c1", result("web", trust="untrusted")))
    (now,) = [each for each in wanted(story.state) if isinstance(each, Admit)]
    assert before.call == now.call
    assert before != now
