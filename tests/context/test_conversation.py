"""A request is an edit of the last one: byte for byte what the journal tells, and it costs what is new in it."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from msgspec.structs import astuple

from holdfast.context.conversation import Edit, common_prefix
from holdfast.context.requests import requests
from holdfast.context.transcript import LAST_PASS
from holdfast.protocol import events as e
from holdfast.protocol.failures import Failure
from holdfast.protocol.messages import Attachment, Text, ToolCall, Usage
from holdfast.protocol.ports import Wire
from holdfast.protocol.request import Enclosed, Fresh
from holdfast.protocol.settings import SettingsRef
from holdfast.protocol.tools import ToolSpec
from holdfast.runtime.compacting import MOST_EARLIER
from holdfast.testing.model_replies import Format
from holdfast.testing.valid_requests import problem
from tests.context.talks import ANTHROPIC, FACTS, OPENAI, RESPONSES, Talk, call, sealed, thought
from tests.seeds import many

LONG = "A long line of output, which a request quotes from its record.\n" * 3
TEXTS = st.sampled_from(["ok", LONG, LONG + "x", '"quoted" \\ \n\u2028 日本語 🙂 ' * 5]) | st.text(
    st.characters(codec="utf-8"), max_size=100
)
WIRES = st.sampled_from([OPENAI, RESPONSES, ANTHROPIC])
BY_NAME: dict[str, Wire] = {wire.name: wire for wire in (OPENAI, RESPONSES, ANTHROPIC)}
FITS = st.sampled_from([10**9, 10**9, 3_000, 1_200])


def messages(body: bytes) -> list[dict[str, Any]]:
    """The messages of a body, without the system prompt."""
    found: list[dict[str, Any]] = msgspec.json.decode(body)["messages"]
    return [message for message in found if message["role"] != "system"]


def marks(edit: Edit) -> str:
    """The marks of what is fresh in the edit."""
    return "".join(each.mark for each in edit.rest)


def roles(body: bytes) -> list[str]:
    return [message["role"] for message in messages(body)]


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Anything that may be said, in any order that the core allows."""
    talk = Talk(draw(WIRES))
    talk.words(draw(TEXTS))
    for turn in range(draw(st.integers(1, 8))):
        if draw(st.integers(0, 6)) == 0:
            talk.switch(draw(WIRES))
        talk.send(draw(FITS))
        if draw(st.booleans()):
            talk.words(draw(TEXTS))
        ending = draw(st.integers(0, 5))
        if ending == 0:
            talk.note(e.ModelCallFailed("m", Failure("provider_transient", "No.")))
        elif ending == 1:
            talk.note(e.ModelCallAbandoned("m"))
        elif ending == 2:
            talk.note(e.ModelCallCut("m", draw(TEXTS), Usage(), 0))
            talk.words(draw(TEXTS))
        else:
            count = draw(st.integers(0, 3))
            calls = [ToolCall(f"ref{turn}", "grep", "{}")] * count
            talk.respond(thought("hm"), sealed("hm"), Text(draw(TEXTS)), *calls)
            if not calls:
                talk.words(draw(TEXTS))
            for number in draw(st.permutations(range(1, count + 1))):
                if draw(st.booleans()):
                    talk.words(draw(TEXTS))
                talk.result(number, draw(TEXTS))
        if draw(st.booleans()):
            talk.note(e.NoteAdded("cost", draw(TEXTS)))
    talk.send()
    return talk


# --- exactly what was sent ------------------------------------------------------------------------


@pytest.mark.requirement("L8", "H1")
@examples(max_examples=many(150), deadline=None)
@given(talks())
def test_the_journal_tells_every_request_byte_for_byte(talk: Talk) -> None:
    assert talk.bodies() == talk.sent
    for body in talk.sent:
        msgspec.json.decode(body)


@pytest.mark.requirement("H1", "L2-05")
@examples(max_examples=many(100), deadline=None)
@given(talks(), TEXTS, FITS)
def test_a_conversation_that_was_loaded_again_goes_on_with_the_same_bytes(
    talk: Talk, text: str, limit: int
) -> None:
    talk.respond(Text(text), call())
    talk.result(1, text)
    talk.fit(limit)
    live = talk.render()
    loaded = talk.render(talk.reload())
    assert loaded.body(b"") == live.body(b"")
    assert (loaded.keep, loaded.rest, loaded.fresh_bytes) == (live.keep, live.rest, live.fresh_bytes)
    assert loaded.hasher.hexdigest() == live.hasher.hexdigest() == hashlib.sha256(live.body(b"")).hexdigest()


@examples(max_examples=many(100), deadline=None)
@given(talks())
def test_every_request_is_one_that_its_service_takes(talk: Talk) -> None:
    """Calls have their results, reasoning comes before what followed it, and no id comes twice."""
    for sent in requests(talk.records, {}):
        wire = BY_NAME[sent.started.request.wire]
        base = wire.base(FACTS, "Be good.", (ToolSpec("grep", "Searches.", {"type": "object"}),))
        body = base + b",".join(sent.fragments) + sent.started.request.tail.encode()
        assert problem(body, cast(Format, wire.name)) == ""


def test_rendering_twice_changes_nothing() -> None:
    talk = Talk()
    talk.words("Do it.")
    first = talk.render().body(b"")
    assert talk.render().body(b"") == first
    assert talk.send().startswith(first)


# --- the order of words ---------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [OPENAI, RESPONSES, ANTHROPIC], ids=lambda wire: wire.name)
def test_words_that_arrive_while_calls_are_open_come_after_their_results(wire: Wire) -> None:
    talk = Talk(wire)
    talk.words("Do it.")
    talk.send()
    talk.respond(call(), call())
    talk.words("And hurry.")
    talk.result(2, "second")
    talk.words("Please.")
    talk.result(1, "first")
    body = talk.send()
    assert b"first" in body
    assert body.index(b"first") < body.index(b"second") < body.index(b"And hurry.") < body.index(b"Please.")


def test_words_that_arrive_during_a_request_come_after_its_answer() -> None:
    talk = Talk()
    talk.words("Do it.")
    talk.send()
    talk.words("And this.")
    talk.respond(Text("Done."))
    assert roles(talk.send()) == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    "ending",
    [e.ModelCallFailed("m", Failure("provider_transient", "No.")), e.ModelCallAbandoned("m")],
    ids=["failed", "abandoned"],
)
def test_words_that_arrive_during_an_attempt_without_an_answer_are_in_the_next_one(ending: e.Event) -> None:
    talk = Talk()
    talk.words("Do it.")
    talk.send()
    talk.words("And this.")
    talk.note(ending)
    assert [message["content"] for message in messages(talk.send())] == ["Do it.", "And this."]


@pytest.mark.requirement("L2-06")
def test_words_of_a_response_that_was_cut_are_kept_and_marked() -> None:
    talk = Talk()
    talk.words("Do it.")
    talk.send()
    talk.note(e.ModelCallCut("m1", LONG, Usage(), 0))
    talk.words("Go on.")
    assert messages(talk.send())[1]["content"] == LONG + "\n[holdfast] The response was stopped here."


@pytest.mark.requirement("C14")
def test_what_the_runtime_says_is_labelled_as_the_runtimes() -> None:
    talk = Talk()
    talk.words("Do it.")
    talk.note(e.NoteAdded("cost", "80 % is used."), e.RunLanding("turns", "The limit is reached."))
    assert [message["content"] for message in messages(talk.send())] == [
        "Do it.",
        "[holdfast] 80 % is used.",
        f"[holdfast] The limit is reached.{LAST_PASS}",
    ]


# --- what a step costs ----------------------------------------------------------------------------


@pytest.mark.requirement("H6")
def test_a_request_records_only_what_is_new_in_it() -> None:
    talk = Talk()
    talk.words("Do it.")
    for number in range(30):
        talk.turn(f"{number} {LONG}")
    assert [edit.keep for edit in talk.edits] == [0] + [2 * n + 1 for n in range(29)]
    assert {marks(edit) for edit in talk.edits[1:]} == {"at"}


@pytest.mark.requirement("H6")
def test_a_long_text_is_quoted_from_its_record_and_not_stored_again() -> None:
    talk = Talk()
    talk.words(LONG)
    talk.turn(LONG + "result")
    talk.send()
    (said,), (_, told) = talk.edits[0].rest, talk.edits[1].rest
    assert isinstance(said, Fresh)
    assert isinstance(told, Fresh)
    assert [part for part in said.piece if isinstance(part, int)] == [1]
    assert [part for part in told.piece if isinstance(part, int)] == [4]
    assert "long line" not in str([said, told])


@pytest.mark.requirement("H6")
def test_a_step_hashes_what_is_new_in_it_and_not_what_was_before() -> None:
    talk = Talk()
    talk.words("Do it.")
    hashed: list[int] = []

    class Counting:
        """SHA-256 that counts what goes through it."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def update(self, data: Any) -> None:
            hashed[-1] += len(data)
            self.inner.update(data)

        def copy(self) -> Counting:
            return Counting(self.inner.copy())

        def hexdigest(self) -> str:
            return str(self.inner.hexdigest())

    for number in range(200):
        hashed.append(0)
        if number == 1:
            talk.conversation._hasher = Counting(talk.conversation._hasher)  # type: ignore[assignment]
        talk.turn("same size")
    assert len(talk.sent[-1]) > 20 * len(talk.sent[0])
    assert 0 < max(hashed[100:]) <= 2 * max(hashed[2:10])


# --- when the window is full ------------------------------------------------------------------------


def filled(turns: int = 40) -> Talk:
    talk = Talk()
    talk.words("The goal of it all.")
    for number in range(turns):
        talk.turn(f"result {number} {LONG}")
    return talk


@pytest.mark.requirement("C15")
def test_a_compaction_keeps_the_goal_and_the_last_turns_and_fits() -> None:
    talk = filled()
    limit = 6_000
    body = talk.send(limit)
    kept = messages(body)
    assert kept[0]["content"] == "The goal of it all."
    assert kept[1]["content"].startswith("[holdfast] The view was cut to save room: records 3 to ")
    assert kept[2]["role"] == "assistant"
    assert kept[-1]["content"].startswith("result 39")
    assert limit * 0.3 < len(body) <= limit * 0.7, "there is room to work"
    edit = talk.edits[-1]
    assert (edit.keep, marks(edit)[:4], set(marks(edit)[2:])) == (0, "ucat", {"a", "t"})


@pytest.mark.requirement("H6")
def test_what_stays_after_a_compaction_is_quoted_and_not_stored_again() -> None:
    talk = filled()
    talk.send(6_000)
    results = [each for each in talk.edits[-1].rest if each.mark == "t"]
    assert len(results) > 3
    assert all(isinstance(each.piece[1], int) and "long line" not in str(each) for each in results)


@pytest.mark.requirement("C5")
def test_a_cut_keeps_the_words_of_the_open_run_whole_and_tells_the_last_ones_before_it() -> None:
    talk = filled()
    first = len(talk.records)
    for number in range(MOST_EARLIER - 1):
        talk.words(f"Between {number}. " + "Much text. " * 100)
        talk.turn(LONG)
    talk.words("The second task.")
    talk.goal_seq = len(talk.records)
    for number in range(30):
        talk.turn(f"second {number} {LONG}")
        if number == 3:
            talk.words("And this too.")
    kept = [str(message["content"]) for message in messages(talk.send(6_000))]
    assert kept[:2] == ["The second task.", "And this too."]
    assert kept[-1].startswith("second 29")
    assert "The goal of it all." in kept[2]
    assert f"[words of the user, record {first + 1}, 1,111 characters, here " in kept[2]
    assert kept[2].count("Much text.") < 100
    assert not any("result" in text for text in kept[3:])
    # Another task, and another cut: the last ones before it are told, and the oldest ones no longer.
    talk.words("The third task.")
    talk.goal_seq = len(talk.records)
    for number in range(30):
        talk.turn(f"third {number} {LONG}")
    kept = [str(message["content"]) for message in messages(talk.send(6_000))]
    assert kept[0] == "The third task."
    assert "The second task." in kept[1]
    assert "And this too." in kept[1]
    assert "The goal of it all." not in kept[1]


@pytest.mark.requirement("C5", "L8")
def test_a_compaction_records_what_is_left_out_and_the_next_one_goes_on_from_it() -> None:
    talk = filled()
    assert talk.compaction.left_out == ()
    sent = messages(talk.send(6_000))
    (stretch,) = talk.compaction.left_out
    assert stretch[0] == 3, "the goal is record 1, its request record 2"
    left = [r.seq for r in talk.records if isinstance(r.event, e.Responded | e.ToolCallFinished)]
    assert sum(stretch[0] <= seq <= stretch[1] for seq in left) + len(sent) == 82
    talk.respond(Text("x"))
    talk.words("More.")
    talk.send(6_000)
    assert talk.compaction.left_out == (stretch,)
    talk.respond(Text("x"))
    for number in range(20):
        talk.turn(f"more {number} {LONG}", most_bytes=6_000)
    (first, *_) = talk.compaction.left_out
    assert (first[0], first[1] > stretch[1]) == (3, True), "a later cut goes on from the first one"
    assert len(talk.compaction.left_out) == 2, "what a person said in between was kept"
    frames = [each["content"] for each in messages(talk.sent[-1]) if "[holdfast] The view" in str(each)]
    assert len(frames) == 1, "only the last compaction tells"


def test_a_cut_is_the_same_whoever_makes_it() -> None:
    assert filled().send(6_000) == filled().send(6_000)


@pytest.mark.requirement("H6")
def test_requests_after_a_cut_go_on_from_it_and_the_next_cut_is_far() -> None:
    talk = filled()
    for number in range(60):
        talk.turn(f"more {number} {LONG}", most_bytes=12_000)
    cuts = [number for number, edit in enumerate(talk.edits[40:]) if not edit.keep]
    assert 2 <= len(cuts) <= 8
    assert all(len(body) <= 12_100 for body in talk.sent[40:])
    assert talk.bodies() == talk.sent


def test_where_not_even_the_goal_fits_it_is_sent_all_the_same() -> None:
    talk = filled(3)
    assert roles(talk.send(10)) == ["user", "user"]


@pytest.mark.requirement("L6")
def test_words_that_are_too_long_are_told_in_part_and_the_last_ones_never() -> None:
    talk = filled()
    talk.goal_seq = 1
    talk.words("Read this first. " + "Much text. " * 500)
    long = len(talk.records)
    talk.turn("done")
    talk.words("And this last. " + "More text. " * 400)
    body = talk.send(9_000)
    kept = [str(each["content"]) for each in messages(body)]
    assert kept[0] == "The goal of it all."
    assert "Read this first. Much text." in kept[1]
    assert f"[words of the user, record {long}, 5,517 characters" in kept[1]
    assert len(kept[1]) < 1_500
    assert kept[-1] == "And this last. " + "More text. " * 400
    for number in range(30):
        talk.turn(f"more {number} {LONG}", most_bytes=9_000)
    told = [str(each["content"]) for each in messages(talk.sent[-1]) if "[holdfast] The view" in str(each)]
    assert "Read this first. Much text." in told[0], "a later compaction tells it again"


@pytest.mark.requirement("C9", "L6")
def test_a_compaction_that_was_undone_brings_all_messages_back() -> None:
    talk = filled(12)
    talk.send(3_000)
    talk.respond(Text("x"))
    talk.note(e.ContextRestored("cli:ann"))
    talk.words("Go on.")
    assert talk.conversation.is_stale
    talk.switch(OPENAI)
    body = talk.send()
    assert [f"result {number} " in body.decode() for number in range(12)] == [True] * 12
    assert b"The view was cut" not in body
    assert not talk.conversation.is_stale
    assert talk.bodies() == talk.sent
    loaded = talk.render(talk.reload())
    assert loaded.body(b"") == talk.render().body(b"")


@pytest.mark.requirement("C5")
def test_what_a_cut_and_its_undo_leave_of_the_last_request_counts_as_sent_before() -> None:
    talk = filled(12)
    talk.send()
    talk.respond(Text("x"))
    talk.words("More.")
    talk.send(3_000)
    assert len(talk.base) < talk.edits[-1].kept_bytes == common_prefix(talk.sent[-2], talk.sent[-1])
    talk.respond(Text("y"))
    talk.words("Even more.")
    talk.send()
    assert talk.edits[-1].kept_bytes == common_prefix(talk.sent[-2], talk.sent[-1])
    talk.respond(Text("z"))
    talk.note(e.ContextRestored("cli:ann"))
    talk.switch(OPENAI)
    talk.send()
    assert len(talk.base) < talk.edits[-1].kept_bytes == common_prefix(talk.sent[-2], talk.sent[-1])


# --- another wire -----------------------------------------------------------------------------------


def unmarked(body: bytes) -> bytes:
    """A body without what says up to where a provider keeps it in its cache."""
    return body.replace(b',"cache_control":{"type":"ephemeral"}', b"")


@pytest.mark.parametrize(
    ("old", "new"), [(OPENAI, ANTHROPIC), (ANTHROPIC, OPENAI)], ids=["openai", "anthropic"]
)
def test_another_wire_writes_the_whole_conversation_anew_and_goes_on_as_itself(old: Wire, new: Wire) -> None:
    talk, plain = Talk(old), Talk(new)
    for each in (talk, plain):
        each.words(LONG)
        for number in range(5):
            each.turn(f"{number} {LONG}")
    talk.switch(new)
    assert unmarked(talk.send()) == unmarked(plain.send())
    for each in (talk, plain):
        each.respond(Text("x"), call())
        each.result(1, LONG)
    assert talk.send() == plain.send()
    assert talk.bodies() == talk.sent
    assert marks(talk.edits[-1]) == "at"


def test_a_journal_with_two_wires_loads_again() -> None:
    talk = filled(5)
    talk.switch(ANTHROPIC)
    talk.turn(LONG)
    loaded = talk.render(talk.reload())
    assert loaded.body(b"") == talk.render().body(b"")


def test_another_wire_with_a_smaller_window_starts_from_a_cut_and_loses_nothing_new() -> None:
    talk = filled()
    talk.words("What is new.")
    talk.switch(ANTHROPIC)
    body = talk.send(6_000)
    assert len(body) <= 6_000
    assert b"The goal of it all." in body
    assert b"result 39" in body
    assert b"What is new." in body
    assert b"result 3 " not in body
    assert talk.bodies() == talk.sent


def run(number: int, *, is_continuation: bool = False) -> e.RunStarted:
    return e.RunStarted(number, SettingsRef(*[""] * len(SettingsRef.__struct_fields__)), is_continuation)


def stopped(number: int) -> e.RunStopped:
    return e.RunStopped(number, "interrupted", "stopped")


@pytest.mark.requirement("B4")
@pytest.mark.parametrize("is_rewritten", [False, True])
def test_a_task_that_was_stopped_before_it_began_is_no_part_of_the_next_one(is_rewritten: bool) -> None:
    talk = Talk()
    talk.words("first")
    talk.note(run(1))
    talk.words("and this")
    talk.note(stopped(1))
    talk.words("second")
    talk.note(run(2))
    if is_rewritten:
        talk.switch(ANTHROPIC)
    assert "".join(str(each["content"]) for each in messages(talk.send())).count("second") == 1
    assert not any(word in talk.sent[-1] for word in (b"first", b"and this"))


@pytest.mark.requirement("B4")
def test_what_was_said_to_a_run_that_had_begun_stays_when_it_is_stopped() -> None:
    talk = Talk()
    talk.words("first")
    talk.note(run(1))
    talk.send()
    talk.words("and this")
    talk.note(e.ModelCallCut("m1", "", Usage(), 0), stopped(1))
    talk.words("second")
    talk.note(run(2))
    assert all(word in talk.send() for word in (b"first", b"and this", b"second"))


@pytest.mark.requirement("B4")
def test_who_goes_on_with_a_task_that_was_stopped_before_it_began_gives_it() -> None:
    talk = Talk()
    talk.words("first")
    talk.note(run(1), stopped(1), run(2, is_continuation=True))
    assert b"first" in talk.send()


@pytest.mark.requirement("C6")
def test_an_attachment_that_is_read_again_counts_with_all_that_was_sent() -> None:
    notes = "A line of notes.\n" * 500
    talk, content = Talk(), {Enclosed("b" * 64): notes}
    talk.note(
        e.MessageReceived(
            "Read it.", attachments=(Attachment("human", "notes.txt", "text/plain", len(notes), "b" * 64),)
        )
    )
    talk.conversation.fill(content)
    talk.send()
    found = talk.reload()
    assert found.missing() == set(content)
    found.fill(content)
    talk.words("And now?")
    found.add(talk.records[-1])
    live, read = talk.render().kinds, talk.render(found).kinds
    assert read == live
    assert sum(astuple(read)) > len(notes)


def test_media_count_by_their_weight_in_every_request_that_carries_them() -> None:
    content, weight = "QUJD" * 500, 300
    picture = Attachment("file", "a.png", "image/png", 1_500, "0" * 64, weight)
    talk = Talk()
    talk.note(e.MessageReceived("Look.", attachments=(picture,)))
    talk.conversation.fill({Enclosed("0" * 64, weight): content})
    for _ in range(2):
        body = talk.turn("one")
        tail = talk.wire.tail(FACTS, 100, is_streaming=False, is_last_pass=False)
        assert content.encode() in body
        assert talk.edits[-1].size_bytes == len(body) - len(tail) - len(content) + weight
