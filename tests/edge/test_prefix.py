"""The prefix of real requests over turns and processes: what a provider may read from its cache, and what it read."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json

import pytest

from holdfast.context.conversation import common_prefix
from holdfast.protocol.messages import Usage
from holdfast.testing.model_replies import Reply, ReplyCall
from holdfast.testing.model_server import ModelServer
from tests.edge.machine import Machine, at_s
from tests.edge.test_answers import WIRES, both_wires

MARK = b',"cache_control":{"type":"ephemeral"}'
TURNS = 200
PROCESSES = 3


def replies(turns: int) -> list[Reply]:
    """Each reads another part of a file; the last one of each process asks, so that it rests."""
    found = []
    for turn in range(1, turns + 1):
        ends = turn % (turns // PROCESSES) == 0 and turn < turns - PROCESSES
        ask = ReplyCall("ask_user", {"question": f"Go on after {turn}?"}, id=f"c{turn}")
        read = ReplyCall("read_file", {"path": "log.txt", "offset": turn, "limit": 1}, id=f"c{turn}")
        found.append(Reply(text=f"Step {turn}.", tool_calls=(ask if ends else read,)))
    return [*found, Reply(text="Done.")]


@both_wires
@pytest.mark.requirement("C5", "S9")
def test_the_prefix_of_200_turns_in_three_processes_is_the_same_bytes(machine: Machine, wire: str) -> None:
    model, address, path, key = WIRES[wire]
    (machine.workspace / "log.txt").write_text("".join(f"line {n} of the log\n" for n in range(1, TURNS + 2)))
    rules = machine.workspace / "AGENTS.md"
    rules.write_text("Read one line at a time.")
    flags = ("--max-turns", "500", "--autonomy", "full", "--json")

    async def main() -> list[bytes]:
        async with ModelServer(replies(TURNS)) as server:
            environ = {address: server.url + path, key: "a-key-of-nobody"}
            command = ("run", "go", "-m", model, "-s", "cli:long", *flags)
            ended = await asyncio.to_thread(machine.holdfast, *command, **environ)
            for process in range(1, PROCESSES):
                assert ended.code == 5, ended.err
                rules.write_text(f"Read {process + 1} lines at a time.")
                ended = await asyncio.to_thread(
                    machine.holdfast, "resume", "cli:long", "Yes.", "--json", **environ
                )
            assert ended.code == 0, ended.err
            return [each.body for each in server.requests]

    arrived = {hashlib.sha256(body).hexdigest(): body for body in asyncio.run(main())}
    assert len(arrived) == TURNS + 1
    # A reflection is sent beside the next request of the work: which one arrives first is chance.
    rows = machine.holdfast("show", "cli:long", "--requests", "--json").rows
    # The marks move, and the cache does not contain them.
    bodies = [arrived[row["sha256"]].replace(MARK, b"") for row in rows]
    first = bodies[0]
    prefix = (
        first[: first.index(b'"messages":[') + 12]
        if wire == "anthropic"
        else first[: first.index(b'"role":"user"')]
    )
    assert b"Read one line at a time." in prefix
    assert all(body.startswith(prefix) for body in bodies)
    kept = sum(common_prefix(one, other) for one, other in itertools.pairwise(bodies))
    assert kept >= 0.995 * sum(map(len, bodies[:-1]))
    events = machine.events("cli:long")
    assert len([each for each in events if each["type"] == "PromptBuilt"]) == 1
    assert [row["prefix_change"] for row in rows] == ["the first request", *[""] * TURNS]
    for row, one, other in zip(rows[1:], bodies, bodies[1:], strict=False):
        tail = len(other) - common_prefix(one, other)
        assert row["cacheable_share"] == pytest.approx(1 - tail / len(other), abs=0.01)


@pytest.mark.requirement("C5")
def test_a_rebuild_is_stated_and_shows_in_the_requests(machine: Machine) -> None:
    model, address, path, key = WIRES["openai"]

    async def main() -> None:
        async with ModelServer([Reply(text="One."), Reply(text="Two."), Reply(text="Three.")]) as server:
            environ = {address: server.url + path, key: "a-key-of-nobody"}
            for count in range(3):
                if count == 2:
                    (machine.workspace / "AGENTS.md").write_text("Use tabs.")
                command = ("run", "go", "-m", model, "-s", "cli:it")
                assert (await asyncio.to_thread(machine.holdfast, *command, **environ)).code == 0

    asyncio.run(main())
    rows = machine.holdfast("show", "cli:it", "--requests", "--json").rows
    assert [row["prefix_change"] for row in rows] == [
        "the first request",
        "",
        "the system prompt was built: a run opened: workspace, workspace (AGENTS.md) changed",
    ]
    assert rows[1]["cacheable_share"] > 0.95 > rows[2]["cacheable_share"] > 0.3
    shown = machine.holdfast("show", "cli:it", "--requests").out
    assert "request 3 begins anew: the system prompt was built: a run opened" in shown


@pytest.mark.parametrize(("cached", "is_warned"), [(0, True), (18_000, False)])
def test_three_calls_that_use_less_than_half_of_the_cache_bring_one_warning_for_the_user(
    machine: Machine, cached: int, is_warned: bool
) -> None:
    model, address, path, key = WIRES["openai"]
    usage = Usage(input_tokens=20_000, output_tokens=5, cache_read_tokens=cached)
    reads = [
        Reply(tool_calls=(ReplyCall("read_file", {"path": f"{n}.txt"}, id=f"c{n}"),), usage=usage)
        for n in range(7)
    ]

    async def main() -> tuple[str, list[bytes]]:
        async with ModelServer([*reads, Reply(text="Done.", usage=usage)]) as server:
            environ = {address: server.url + path, key: "a-key-of-nobody"}
            for n in range(7):
                (machine.workspace / f"{n}.txt").write_text(f"file {n}\n")
            ended = await asyncio.to_thread(machine.holdfast, "run", "go", "-m", model, **environ)
            assert ended.code == 0, ended.err
            return ended.err, [each.body for each in server.requests]

    said, bodies = asyncio.run(main())
    assert said.count("from its cache") == (1 if is_warned else 0)
    assert not [body for body in bodies if b"from its cache" in body]
    rows = machine.holdfast("show", "last", "--requests", "--json").rows
    assert {row["cache_read_share"] for row in rows} == {cached / 20_000}


@pytest.mark.requirement("S9")
def test_the_time_before_the_words_is_in_the_request_and_in_no_view(machine: Machine) -> None:
    model = machine.script([{"text": "Done."}])
    environ = {"TZ": "America/New_York"}
    assert machine.holdfast("run", "Paint it.", "-m", model, "-s", "cli:it", **environ).code == 0
    body = json.loads(machine.holdfast("show", "cli:it", "--request", "1").out)
    head, _, text = body["messages"][0]["text"].partition("] ")
    assert head.startswith("[20")
    assert head.endswith((" EST", " EDT"))
    assert text == "Paint it."
    (told,) = [each for each in machine.events("cli:it") if each["type"] == "MessageReceived"]
    assert told["body"]["head"] == f"{head}] "
    assert abs(at_s(told) % 60 - int(head.rpartition(" ")[0][-2:])) < 1
    for view in (
        ("show", "cli:it"),
        ("show", "cli:it", "--json"),
        ("sessions",),
        ("sessions", "--json"),
        ("report", "cli:it"),
        ("undo", "cli:it", "--list"),
    ):
        shown = machine.holdfast(*view)
        assert head not in shown.out + shown.err, view
    assert machine.holdfast("sessions", "--grep", head[1:11], "--json").rows == []
    assert len(machine.holdfast("sessions", "--grep", "Paint it", "--json").rows) == 1
