"""Processes that share a budget, one of them killed: by the server's own count they never exceed it."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from threading import Event

import pytest

from holdfast.testing.model_replies import Format, Rendered, Reply, ReplyCall, render
from holdfast.testing.model_server import ModelServer, Received
from tests.cli.processes import Cli, Ended

BYTES_PER_TOKEN = 4
OUTPUT_TOKENS = 60
INPUT_MICROUSD, OUTPUT_MICROUSD = 0.5, 2.0
SETTINGS = """
max_output_tokens = 500
[providers.openai]
base_url = "{url}/v1"
[catalog."*:counted"]
input_usd_per_mtok = 0.5
output_usd_per_mtok = 2.0
context_tokens = 1000000
[guard]
stall_turns = 1000
[budgets]
day_usd = "{day}"
"""


class CountingServer(ModelServer):
    """A server that keeps its own books: whatever was asked is charged, whether anybody reads the response or not."""

    def __init__(self) -> None:
        super().__init__([])
        self.charged_microusd = 0.0

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        self.requests.append(request)
        self._changed.set()
        read, number = len(request.body) // BYTES_PER_TOKEN, len(self.requests)
        self.charged_microusd += read * INPUT_MICROUSD + OUTPUT_TOKENS * OUTPUT_MICROUSD
        calls = (
            () if b'"tool_choice":"none"' in request.body else (ReplyCall("glob", {"pattern": f"{number}*"}),)
        )
        counts = {"prompt_tokens": read, "completion_tokens": OUTPUT_TOKENS}
        reply = Reply(text=f"Looked {number} times.", tool_calls=calls, report=counts, delay_s=0.03)
        wire: Format = "openai"
        return reply, render(reply, wire, number, is_streaming=b'"stream":true' in request.body)


async def share(cli: Cli, day: str) -> None:
    """Four runs at once; one is killed in a model call, and resumed. Check what the server counted."""
    most = float(day) * 1_000_000
    args = ("run", "look", "-m", "openai:counted", "--max-turns", "1000", "--json")
    async with CountingServer() as server:
        cli.configure(SETTINGS.format(url=server.url, day=day))

        is_at_work = Event()

        def killed() -> Ended:
            with cli.working(*args[:-1], "-s", "test:killed") as working:
                for _ in range(3):
                    working.until_type("ModelCallStarted")
                is_at_work.set()  # the others could leave nothing for three calls
                working.end(signal.SIGKILL)
            return cli("resume", "test:killed", "--json")

        def other() -> Ended:
            assert is_at_work.wait(60)
            return cli(*args)

        runs = [asyncio.to_thread(killed), *[asyncio.to_thread(other) for _ in range(3)]]
        ended = await asyncio.gather(*runs)
        assert all((each.code, each.json["reason"]) == (3, "budget_day") for each in ended), ended
        assert all(each.json["text"] for each in ended if each.json["model_calls"]), "a run without an answer"
        # What long conversations leave may be enough for a few calls of a new one.
        while (await asyncio.to_thread(cli, *args)).json["model_calls"]:
            assert server.charged_microusd <= most
        before = len(server.requests)
        later = [
            await asyncio.to_thread(cli, *args),
            await asyncio.to_thread(cli, "resume", "last", "--json"),
        ]
        assert [(each.code, each.json["model_calls"]) for each in later] == [(3, 0)] * 2
        assert len(server.requests) == before
        assert most / 2 <= server.charged_microusd <= most
    (row,) = [each for each in map(dict, _rows(cli)) if each["scope"] == "day"]
    assert float(row["spent_usd"]) + float(row["held_usd"]) >= server.charged_microusd / 1_000_000


def _rows(cli: Cli) -> list[dict[str, str]]:
    return [json.loads(line) for line in cli("budget", "--json").out.splitlines()]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path, {"OPENAI_API_KEY": "k"})


@pytest.mark.requirement("H3", "L2-07", "B2")
@pytest.mark.parametrize("day", ["0.05", pytest.param("1.00", marks=pytest.mark.long)])
async def test_four_processes_one_of_them_killed_never_exceed_a_budget(cli: Cli, day: str) -> None:
    await share(cli, day)
