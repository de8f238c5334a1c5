"""Budgets against real servers that count badly, break off or lie: what is charged and said, and how the run ends."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.model_replies import Reply, ReplyCall
from holdfast.testing.model_server import ModelServer
from tests.cli.processes import Cli, Ended

PRICED = """
[providers.openai]
base_url = "{url}/v1"
[providers.anthropic]
base_url = "{url}"
[catalog."*:priced"]
input_usd_per_mtok = 1.0
output_usd_per_mtok = 10.0
context_tokens = 1000000
"""
COUNTS = {
    "openai": ("prompt_tokens", "completion_tokens"),
    "anthropic": ("input_tokens", "output_tokens"),
}
WIRES = pytest.mark.parametrize("provider", COUNTS)
MISSING = (..., None, "many", 10**12, 0, -5)
"""What a server sends in the place of a count; `...`: nothing."""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})


def report(provider: str, read: Any, written: Any) -> dict[str, Any]:
    """What a server says that it counted."""
    counts = zip(COUNTS[provider], (read, written), strict=True)
    return {name: count for name, count in counts if count is not ...}


async def run(cli: Cli, server: ModelServer, provider: str, budget: str, *more: str) -> Ended:
    """A run while this process serves the model that it asks."""
    cli.configure(PRICED.format(url=server.url))
    args = ("run", "x", "-m", f"{provider}:priced", "--budget", budget, "--json", *more)
    return await asyncio.to_thread(cli, *args)


def look(number: int) -> ReplyCall:
    """A call that does not count as the same one again."""
    return ReplyCall("glob", {"pattern": f"{number}*"})


def outcomes(cli: Cli) -> list[dict[str, Any]]:
    """The events that ended attempts of model calls."""
    ended = ("Responded", "ModelCallFailed", "ModelCallCut")
    lines = cli("show", "last", "--events", "--json").out.splitlines()
    events = [json.loads(line) for line in lines]
    return [event["body"] | {"type": event["type"]} for event in events if event["type"] in ended]


@pytest.mark.requirement("C6", "H3", "L2-07")
@WIRES
async def test_what_a_server_does_not_count_of_its_input_is_charged_all_the_same(
    cli: Cli, provider: str
) -> None:
    counted = [report(provider, read, 5) for read in MISSING]
    replies = [Reply(tool_calls=(look(n),), report=counted[n % len(counted)]) for n in range(60)]
    async with ModelServer(replies) as server:
        ended = await run(cli, server, provider, "0.05", "--max-turns", "60")
        assert len(MISSING) <= len(server.requests) < 31
    assert (ended.code, ended.json["reason"]) == (3, "cost")
    assert 0.02 < float(ended.json["cost_usd"]) <= 0.05
    assert all(event["estimated"] == ["input"] for event in outcomes(cli))
    assert re.search(r"about [\d.]+k tokens · about \$0\.0", ended.err), ended.err
    rows = cli("show", "last", "--requests", "--json").out.splitlines()
    assert all("input estimated" in json.loads(row)["outcome"] for row in rows)


@pytest.mark.requirement("C6", "H3", "L2-07")
@WIRES
async def test_an_absurd_count_ends_with_3(cli: Cli, provider: str) -> None:
    calls = (look(1),) if provider == "openai" else ()
    reply = Reply(text="Hm.", tool_calls=calls, report=report(provider, 999_999_999, 5))
    async with ModelServer([reply, Reply(text="Done.")]) as server:
        ended = await run(cli, server, provider, "2")
        assert len(server.requests) == 1
    assert (ended.code, ended.json["status"], ended.json["reason"]) == (3, "limit", "cost")
    assert ended.json["text"] == "Hm."
    assert "The budget of $2.00 is exceeded" in ended.err


@pytest.mark.requirement("H3", "L2-07")
@WIRES
async def test_what_a_broken_stream_may_have_cost_is_charged(cli: Cli, provider: str) -> None:
    broken = Reply(text="x" * 7_000, pieces=100, usage=None, fault="cut")
    async with ModelServer([broken, Reply(text="Done.")]) as server:
        ended = await run(cli, server, provider, "2")
        sent_bytes = len(server.requests[0].body)
    first, second = outcomes(cli)
    assert (first["type"], first["estimated"]) == ("ModelCallFailed", ["input", "output"])
    assert sent_bytes // 5 < first["usage"]["input_tokens"] < sent_bytes // 3
    assert 500 < first["usage"]["output_tokens"] < 2_000
    assert "estimated" not in second
    assert ended.json["usage"]["input_tokens"] == first["usage"]["input_tokens"] + 10
    assert ended.json["usage"]["output_tokens"] == first["usage"]["output_tokens"] + 5
    # The books say the same: the attempt without a response is lost, and what it cost is an estimate.
    booked = cli("report", "--cost", "--json").json
    assert booked["spent_usd"] == ended.json["cost_usd"]
    assert booked["by_purpose"]["lost"] == booked["estimated_usd"] > "0.00"
    (row,) = map(json.loads, cli("show", "last", "--cost", "--json").out.splitlines())
    assert (row["estimated_usd"], row["model"]) == (booked["estimated_usd"], f"{provider}:priced")
    assert row["spent_usd"] == booked["spent_usd"]
    assert f"total about ${float(row['spent_usd']):.4f}" in cli("show", "last", "--cost").out


@pytest.mark.requirement("H3", "L2-07")
@WIRES
async def test_a_response_over_its_cap_is_charged_told_and_ends_the_run(cli: Cli, provider: str) -> None:
    over = Reply(text="Hm.", tool_calls=(look(1),), report=report(provider, 100, 300_000))
    async with ModelServer([over, Reply(text="Done.")]) as server:
        ended = await run(cli, server, provider, "2")
        assert len(server.requests) == 1
    assert (ended.code, ended.json["reason"], ended.json["cost_usd"]) == (3, "cost", "3.0001")
    assert "Your last response has 300,000 tokens, more than the" in ended.err


@pytest.mark.requirement("C6", "L2-07")
async def test_a_free_model_may_count_nothing(cli: Cli) -> None:
    async with ModelServer([Reply(text="Done.", report=report("openai", 0, 0))]) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.openai_url}
        cli.configure('[catalog."openai:any"]\ninput_usd_per_mtok = 0\noutput_usd_per_mtok = 0\n')
        ended = await asyncio.to_thread(cli, "run", "x", "-m", "openai:any", "--json")
    assert (ended.code, ended.json["usage"]["input_tokens"], ended.json["cost_usd"]) == (0, 0, "0.00")
    assert all("estimated" not in event for event in outcomes(cli))
    assert "about" not in ended.err


async def _count_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server to which every byte is a token, that writes as much as it may, and asks for a large file each time."""
    with suppress(asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            assert length
            body = await reader.readexactly(int(length[1]))
            cap = int(json.loads(body)["max_tokens"])
            arguments = json.dumps({"path": "large.txt", "offset": body.count(b'"role":"tool"')})
            call = {"id": f"c{len(body)}", "function": {"name": "read_file", "arguments": arguments}}
            message = {
                "content": "x" * min(4 * cap, 2_000),
                "tool_calls": [call] if b'"tools"' in body else [],
            }
            answer = {
                "choices": [{"message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": len(body), "completion_tokens": cap},
            }
            content = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(content), content))
    writer.close()


@pytest.mark.requirement("H3", "L2-07", "B8")
@pytest.mark.parametrize("budget", ["0.04", "0.15", "0.60"])
async def test_a_server_to_which_every_byte_is_a_token_keeps_within_the_budget(cli: Cli, budget: str) -> None:
    (cli.workspace / "large.txt").write_text("word\n" * 3_000)
    async with await asyncio.start_server(_count_bytes, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        cli.configure(PRICED.format(url=f"http://127.0.0.1:{port}"))
        args = ("run", "x", "-m", "openai:priced", "--budget", budget, "--json")
        ended = await asyncio.to_thread(cli, *args)
    assert (ended.code, ended.json["reason"]) == (3, "cost")
    assert "exceeded" not in ended.err
    assert 0 < float(ended.json["cost_usd"]) <= float(budget)
    assert ended.json["text"], "it ended in an answer"
