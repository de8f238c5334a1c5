"""read_output and recall_history: a session reads and finds all that is stored of it, and nothing of another one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.protocol.codec import StoredRecord
from holdfast.protocol.events import MessageReceived, ModelCallCut, Responded, ToolCallFinished
from holdfast.protocol.messages import Attachment, Text, ToolCall, Usage
from holdfast.protocol.ports import CallContext, RawResult, Store
from holdfast.protocol.tools import CallResult
from holdfast.protocol.trust import Trust
from holdfast.sandbox.process import Processes
from holdfast.storage.sqlite import SqliteStore
from holdfast.storage.volatile import VolatileStore
from holdfast.testing.clock import JumpingClock, never_over
from holdfast.testing.driving import Driving, branch, drive, said
from holdfast.tools import read_output
from holdfast.tools.read_output import FOLD_CHARS, PAGE_CHARS, ReadOutput
from holdfast.tools.recall import MOST_CHARS, RecallHistory
from holdfast.views import history
from tests.growth import TIMES, is_in_line, least_s

LINES = "".join(f"line {number} of the output\n" for number in range(1, 5_001))


@pytest.fixture(params=["home", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    clock = JumpingClock()
    if request.param == "memory":
        yield VolatileStore(clock)
        return
    durable = SqliteStore.open(tmp_path / "home", clock=clock)
    yield durable
    await durable.aclose()


@pytest.fixture
async def driving(store: Store) -> Driving:
    return await drive(store)


def context(session: str) -> CallContext:
    return CallContext(session, "t9.c1", f"{session}:t9.c1", "/", 60.0, 60.0, lambda _: None, never_over)


async def reading(driving: Driving, **arguments: Any) -> RawResult:
    processes = Processes()
    try:
        return await ReadOutput(processes, driving.store).run(arguments, context(driving.session))
    finally:
        await processes.aclose()


async def recalling(driving: Driving, query: str, **arguments: Any) -> RawResult:
    tool = RecallHistory(driving.store)
    return await tool.run({"query": query, **arguments}, context(driving.session))


async def output(driving: Driving, text: str, call_id: str = "t1.c1", trust: Trust = "data") -> str:
    """Store an output that was clipped; its handle."""
    blob = await driving.store.blobs.put(text.encode())
    result = CallResult("ok", f"{text[:50]} [... left out ...]", blob=blob, trust=trust)
    await driving.commit(ToolCallFinished(call_id, result))
    return blob


def called(name: str, arguments: str, call_id: str, words: str = "") -> Responded:
    call = ToolCall("r", name, arguments, call_id)
    return Responded("m1", (Text(words), call), Usage(), 0, "tool_calls")


def found(result: RawResult) -> list[int]:
    """The records that a search shows, in order."""
    return [int(seq) for seq in re.findall(r"^r(\d+),", result.text, re.MULTILINE)]


def erased(record: StoredRecord) -> StoredRecord:
    return msgspec.structs.replace(record, body=b"", digest=record.body_digest)


# --- read_output ----------------------------------------------------------------------------------


@pytest.mark.requirement("C7")
async def test_every_page_of_a_whole_output_can_be_read_by_its_handle(driving: Driving) -> None:
    blob = await output(driving, LINES)
    first, lines, pages = 1, "", 0
    while first:
        page = await reading(driving, handle=blob[:12], offset=first)
        assert page.status == "ok"
        assert len(page.text) < 24_000
        head, *shown, note = page.text.split("\n")
        assert head == f"[output {blob[:12]}; trust: data]"
        lines += "".join(f"{line}\n" for line in shown)
        following = re.search(r"continue with offset=(\d+)", note)
        first, pages = int(following[1]) if following else 0, pages + 1
    assert lines == LINES
    assert pages > 3


@pytest.mark.requirement("C7")
async def test_of_several_contents_in_one_record_a_handle_names_one(driving: Driving) -> None:
    blobs = [await driving.store.blobs.put(text.encode()) for text in ("the first", "the second")]
    attachments = tuple(Attachment("file", blob[:4], "text/plain", 9, blob) for blob in blobs)
    await driving.commit(MessageReceived("Look.", attachments=attachments))
    for blob, text in zip(blobs, ("the first", "the second"), strict=True):
        assert text in (await reading(driving, handle=blob[:12])).text


@pytest.mark.requirement("C7")
async def test_an_output_is_searched_by_a_pattern_with_the_numbers_of_its_lines(driving: Driving) -> None:
    blob = await output(driving, LINES)
    matched = await reading(driving, handle=blob, pattern=r"line 4\d99 ")
    assert matched.text.splitlines()[1:] == [
        f"{number}: line {number} of the output" for number in range(4_099, 5_000, 100)
    ]
    page = await reading(driving, handle=blob, offset=4_199, limit=1)
    assert page.text.splitlines()[1] == "line 4199 of the output"
    some = await reading(driving, handle=blob, pattern="line", offset=100, limit=2)
    assert some.text.splitlines()[1:] == [
        "100: line 100 of the output",
        "101: line 101 of the output",
        "[more lines match: continue with offset=102, or narrow the pattern]",
    ]
    assert (await reading(driving, handle=blob, pattern="nowhere")).text.endswith("\n[no lines match]\n")
    broken = await reading(driving, handle=blob, pattern="(")
    assert broken.status == "error"
    assert "not a regular expression" in broken.text


async def test_a_text_on_one_line_can_be_paged_and_searched(driving: Driving) -> None:
    text = "".join(f'{{"id": {number}, "name": "item {number}"}}, ' for number in range(5_000))
    blob = await output(driving, text)
    matched = await reading(driving, handle=blob, pattern='"item 3210"')
    number = int(matched.text.splitlines()[1].partition(":")[0])
    assert '"item 3210"' in matched.text
    page = await reading(driving, handle=blob, offset=number, limit=1)
    assert '"item 3210"' in page.text
    assert len(page.text) < PAGE_CHARS
    assert f"of {-(-len(text) // FOLD_CHARS):,} lines" in page.text


@pytest.mark.requirement("L1", "L7")
async def test_a_search_of_an_output_that_never_ends_is_ended(
    driving: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_output, "MATCH_S", 0.8)
    blob = await output(driving, "a" * 60 + "b\n")
    ended = await reading(driving, handle=blob, pattern="^(a+)+$")
    assert ended.status == "timeout"
    assert "simpler pattern" in ended.text


async def test_the_words_of_a_record_can_be_read_by_its_number(driving: Driving) -> None:
    blob = await driving.store.blobs.put(b"a long letter")
    letter = Attachment("file", "letter.txt", "text/plain", 13, blob, trust="data")
    await driving.commit(
        MessageReceived("Keep the port 8123.", "cli:ann", attachments=(letter,)),
        called("shell", '{"command":"ls"}', "t1.c1", "I look."),
    )
    whole = await output(driving, LINES)
    first = await reading(driving, handle="r1")
    assert first.text.startswith("[record 1, cli:ann; trust: user]\nKeep the port 8123.\n")
    assert first.trust == "user"
    assert f"[letter.txt: read_output handle {blob[:12]}]" in first.text
    assert "a long letter" in (await reading(driving, handle=blob[:8])).text
    second = await reading(driving, handle="r2")
    assert '[record 2, assistant; trust: assistant]\nI look.\nshell {"command":"ls"}\n' in second.text
    assert "5000: line 5000 of" in (await reading(driving, handle="r3", pattern="line 5000 ")).text
    assert whole


@pytest.mark.requirement("C14")
async def test_what_is_read_is_trusted_no_more_than_what_it_quotes(driving: Driving) -> None:
    data = await output(driving, "plain words", "t1.c1", "data")
    web = await output(driving, "words of the web", "t1.c2", "untrusted")
    assert (await reading(driving, handle=data)).trust == "data"
    assert (await reading(driving, handle=web)).trust == "untrusted"
    await output(driving, "plain words", "t1.c3", "untrusted")
    assert (await reading(driving, handle=data)).trust == "untrusted", (
        "the same content came from the web too"
    )
    both = await recalling(driving, "words")
    assert both.trust == "untrusted"
    assert "r2, tool, trust: untrusted" in both.text


@pytest.mark.requirement("C7")
async def test_no_session_reads_or_finds_what_another_one_stored(store: Store, driving: Driving) -> None:
    blob = await output(driving, LINES)
    other = await drive(store, 2)
    await other.commit(MessageReceived(f"Read {blob} for me."))
    for handle in (blob, blob[:12]):
        refused = await reading(other, handle=handle)
        assert refused.status == "error"
        assert refused.text == f"No record of this session names an output {handle}."
    assert (await reading(other, handle="r2")).status == "error"
    assert found(await recalling(other, "line 17 of the output")) == []


async def test_a_branch_reads_and_finds_what_it_shares_and_nothing_later(driving: Driving) -> None:
    await driving.commit(MessageReceived("The colour is teal."))
    shared = await output(driving, LINES)
    await driving.commit(MessageReceived("The colour is ochre."))
    later = await output(driving, "later " * 100, "t2.c1")
    child = await branch(driving, 2, 5, MessageReceived("The colour is plum."))
    assert "line 4000 " in (await reading(child, handle=shared, offset=4_000, limit=1)).text
    assert (await reading(child, handle=later)).status == "error"
    assert found(await recalling(child, "colour")) == [4, 1]
    assert found(await recalling(driving, "colour")) == [3, 1]


async def test_handles_that_name_nothing_or_too_much_are_refused_with_the_reason(driving: Driving) -> None:
    picture = await driving.store.blobs.put(b"\x89PNG")
    image = Attachment("file", "a.png", "image/png", 4, picture, 100)
    await driving.commit(MessageReceived("Look.", attachments=(image,)))
    for handle, why in {
        "../etc": "is not a handle",
        "ABCDEF0123": "is not a handle",
        "r0": "does not exist",
        "r99": "does not exist",
        "0" * 64: "No record of this session names",
        picture: "is an image or a PDF",
    }.items():
        refused = await reading(driving, handle=handle)
        assert refused.status == "error"
        assert why in refused.text
    beyond = await reading(driving, handle="r1", offset=9)
    assert beyond.status == "error"
    assert beyond.text == "There is no line 9. The last one is 2."


async def test_an_output_that_is_gone_is_an_error_of_the_call_only(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "home", clock=JumpingClock())
    driving = await drive(store)
    blob = await output(driving, LINES)
    for path in (tmp_path / "home").rglob(f"*{blob[8:40]}*"):
        path.unlink()
    gone = await reading(driving, handle=blob)
    assert gone.status == "error"
    assert "cannot be read" in gone.text
    assert found(await recalling(driving, "4000")) == []
    await store.aclose()


# --- recall_history -------------------------------------------------------------------------------


@pytest.mark.requirement("C7")
async def test_the_words_of_people_models_and_tools_are_found_with_record_and_origin(
    driving: Driving,
) -> None:
    await driving.commit(
        MessageReceived("The Port is 8123, remember.", "cli:ann"),
        called("shell", '{"command":"netstat --port"}', "t1.c1", "I look."),
        ToolCallFinished("t1.c1", CallResult("ok", "port 8123 is open", trust="data")),
        said("Your port is open."),
        ModelCallCut("m3", "The port was", Usage(), 0),
    )
    result = await recalling(driving, "PORT")
    heads = [line for line in result.text.splitlines() if line.startswith("r")]
    assert [head.partition(", 2025-")[0] for head in heads] == [
        "r5, assistant, trust: assistant",
        "r4, assistant, trust: assistant",
        "r3, tool shell, trust: data",
        "r2, assistant, trust: assistant",
        "r1, cli:ann, trust: user",
    ]
    assert "  The Port is 8123, remember.\n" in result.text
    assert result.trust == "data"
    assert heads[-1].endswith("UTC, handle r1:")


async def test_what_has_more_and_rarer_words_comes_first_then_the_newest(driving: Driving) -> None:
    await driving.commit(
        MessageReceived("The deploy key of the quokka service"),
        *[MessageReceived(f"deploy number {number}") for number in range(30)],
        MessageReceived("A quokka in the zoo"),
    )
    assert found(await recalling(driving, "quokka deploy", limit=4)) == [1, 32, 31, 30]
    assert found(await recalling(driving, "Which key does the quokka service have?", limit=1)) == [1]


@pytest.mark.requirement("C7")
async def test_whole_outputs_are_searched_last(driving: Driving) -> None:
    blob = await output(driving, LINES, "t1.c1")
    await driving.commit(MessageReceived("Is there a line 4321 of the output?"))
    result = await recalling(driving, "line 4321 of the output")
    assert found(result) == [2, 1, 1], "the clipped text has some of the words, the whole one has all"
    assert result.text.count("line 4321 of the output") == 2
    *_, last = re.findall(r"handle (\w+):", result.text)
    assert last == blob[:12]
    assert "4321: " in (await reading(driving, handle=last, pattern="4321")).text


@pytest.mark.requirement("C7")
async def test_a_whole_output_is_found_only_if_it_has_all_the_words(driving: Driving) -> None:
    await output(driving, LINES, "t1.c1")
    assert found(await recalling(driving, "line 4321 heron")) == [1]
    assert found(await recalling(driving, "line 4321")) == [1, 1]


@pytest.mark.requirement("C7")
async def test_a_rare_word_counts_more_than_a_common_one(driving: Driving) -> None:
    await driving.commit(MessageReceived("A heron."), *[MessageReceived(f"Lamp {n}.") for n in range(3)])
    assert found(await recalling(driving, "lamp heron")) == [1, 4, 3, 2]


async def test_searches_and_their_results_are_not_found_again(driving: Driving) -> None:
    await driving.commit(
        MessageReceived("The password hint is a heron."),
        called("recall_history", '{"query":"heron"}', "t1.c1"),
        ToolCallFinished("t1.c1", CallResult("ok", "r1, user: a heron", trust="data")),
    )
    assert found(await recalling(driving, "heron")) == [1]


@pytest.mark.parametrize(
    "query", ["text", "kind", "status", "ok", "t1", "123", "the", "größe", '"quoted"', "a/b.py"]
)
async def test_words_that_the_encoding_has_too_are_found_only_where_somebody_said_them(
    driving: Driving, query: str
) -> None:
    await driving.commit(
        MessageReceived(f"A line with {query.upper()} in it"),
        called("shell", "{}", "t1.c1", "Nothing here."),
        ToolCallFinished("t1.c1", CallResult("ok", "no", output_chars=123, duration_ms=1_234, trust="data")),
    )
    assert found(await recalling(driving, query)) == [1]


async def test_a_number_that_was_said_once_is_found_among_many_records_that_encode_it(
    driving: Driving,
) -> None:
    results = [ToolCallFinished(f"t{n}.c1", CallResult("ok", "no", output_chars=123)) for n in range(300)]
    await driving.commit(MessageReceived("It was 123."), *results)
    assert found(await recalling(driving, "123")) == [1]


async def test_erased_and_damaged_records_are_passed_over(driving: Driving) -> None:
    made = driving.make(*(MessageReceived(f"a heron, number {number}") for number in range(1, 4)))
    kept = list(made.records)
    kept[1] = erased(kept[1])
    await driving.store.commit(msgspec.structs.replace(made, records=tuple(kept)))
    assert found(await recalling(driving, "heron")) == [3, 1]
    assert (
        await reading(driving, handle="r2")
    ).text == "Record 2 of this session does not exist, or has no words."


async def test_what_a_search_returns_is_bounded(driving: Driving) -> None:
    await driving.commit(*[MessageReceived("heron " + "word " * 400) for _ in range(100)])
    result = await recalling(driving, "heron", limit=1_000)
    assert len(found(result)) == 50
    assert len(result.text) <= MOST_CHARS
    assert len(found(await recalling(driving, "heron"))) == 10
    nothing = await recalling(driving, "wombat")
    assert nothing.text == "[nothing in this session has these words]\n"
    assert (await recalling(driving, "?!")).status == "error"


async def test_old_outputs_beyond_the_bound_are_named_as_not_searched(
    driving: Driving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.tools.recall.MOST_ENCLOSED", 2)
    for number in range(5):
        await output(driving, "x" * 100 + f" heron {number}", f"t{number}.c1")
    result = await recalling(driving, "heron")
    assert found(result) == [5, 4]
    assert "[not searched: 3 older outputs. read_output searches one of them.]" in result.text


async def test_the_cost_of_a_search_grows_with_the_history(driving: Driving) -> None:
    lines = "\n".join(f"src/module_{number}.py: reads the settings" for number in range(50))
    costs_s = list[list[float]]()
    for turns in (range(60), range(60, 60 * TIMES)):
        events = [
            event
            for number in turns
            for event in (
                called("read_file", "{}", f"t{number}.c1", "I read on."),
                ToolCallFinished(f"t{number}.c1", CallResult("ok", lines, trust="data")),
            )
        ]
        await driving.commit(*events)
        queries = ("quokka", "settings", "text", "17")
        costs_s.append([await least_s(partial(recalling, driving, query)) for query in queries])
    assert all(is_in_line(once_s, often_s) for once_s, often_s in zip(*costs_s, strict=True)), costs_s


def test_terms_are_the_words_of_a_query_and_the_whole_of_it() -> None:
    assert history.terms_of("  Which PORT, exactly? ") == ("which", "port", "exactly", "which port exactly")
    assert history.terms_of("port") == ("port",)
    assert history.terms_of("?") == ()
    assert len(history.terms_of("a b c d e f g h i j k l")) == history.MAX_TERMS
