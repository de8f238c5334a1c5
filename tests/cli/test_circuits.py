"""`holdfast circuits`: what fails is listed, explained and reset, by processes that share it."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol.circuits import CallEnded, Caller
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.model_replies import Rendered, Reply, render
from holdfast.testing.model_server import ModelServer, Received
from tests.cli.conftest import Holdfast
from tests.cli.processes import Cli

OPEN, HELD = "openai:fake#3f9a1c", "openai:other#3f9a1c"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A home with an open circuit, and a service that wants no calls."""

    async def fill() -> None:
        store = SqliteStore.open(tmp_path / "home")
        failed = [CallEnded(Caller("s", f"m{n}", 1), OPEN, "fails", reason="It is down.") for n in range(3)]
        await store.ended(*failed)
        await store.ended(CallEnded(Caller("s", "m4", 1), HELD, "neither", 60_000, "It is busy."))
        await store.aclose()

    asyncio.run(fill())
    return tmp_path / "home"


@pytest.mark.requirement("A2")
def test_circuits_are_listed_with_their_state_and_reset(holdfast: Holdfast, folder: Path) -> None:
    home = ("--home", str(folder))
    opened, held = holdfast("circuits", *home, "--json").rows
    assert opened | {"retry_at": bool(opened["retry_at"])} == {
        "name": OPEN, "state": "open", "failures": 3, "retry_at": True, "held_until": None, "reason": "It is down.",
    }  # fmt: skip
    assert (held["name"], held["state"], held["retry_at"]) == (HELD, "closed", None)
    assert held["held_until"] > "2020"
    shown = holdfast("circuits", *home)
    assert shown.code == 0
    assert "openai:fake" in shown.out
    assert holdfast("circuits", "reset", OPEN, *home).out == "1 circuit reset.\n"
    assert [row["state"] for row in holdfast("circuits", *home, "--json").rows] == ["closed", "closed"]
    assert holdfast("circuits", "reset", *home).out == "2 circuits reset.\n"
    assert all(row["held_until"] is None for row in holdfast("circuits", *home, "--json").rows)


@pytest.mark.requirement("A2")
def test_resetting_a_circuit_that_nobody_knows_is_a_usage_error(holdfast: Holdfast, folder: Path) -> None:
    refused = holdfast("circuits", "reset", "openai:nobody#000000", "--home", str(folder))
    assert refused.code == 2
    assert "There is no circuit 'openai:nobody#000000' in this home." in refused.err
    assert holdfast("circuits", "reset", "x", "--home", str(folder / "no-home")).code == 2


def test_a_home_in_which_nothing_failed_says_so(holdfast: Holdfast, tmp_path: Path) -> None:
    home = str(tmp_path / "new")
    assert holdfast("circuits", "--home", home).out == "No service has failed yet.\n"
    assert holdfast("circuits", "--home", home, "--json").rows == []
    assert holdfast("circuits", "reset", "--home", home).out == "There is no circuit to reset.\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.requirement("A2")
def test_doctor_names_open_circuits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.cli.doctor import check_circuits
    from holdfast.config.paths import Home

    found = list(check_circuits(Home(folder, folder / "config.toml")))
    assert [(each.id, each.severity) for each in found] == [("circuits", "warning")] * 2
    assert "openai:fake#3f9a1c is open" in found[0].message
    assert "It is down." in found[0].message
    assert "holdfast circuits reset" in found[0].hint
    (fine,) = check_circuits(Home(folder / "none", folder / "none" / "config.toml"))
    assert fine.severity == "ok"


class DeadServer(ModelServer):
    """A server that fails until it is mended, and notes when it was called."""

    def __init__(self) -> None:
        super().__init__([])
        self.is_mended = False
        self.called_s: list[float] = []
        self.at_work = 0

    def answer(self, request: Received) -> tuple[Reply, Rendered]:
        self.called_s.append(asyncio.get_running_loop().time())
        self._changed.set()
        reply = Reply(text="Done.") if self.is_mended else Reply(status=503, message="It is down.")
        is_streaming = self.is_mended and b'"stream":true' in request.body
        return reply, render(reply, "openai", len(self.called_s), is_streaming=is_streaming)


@pytest.mark.long
@pytest.mark.requirement("A2")
async def test_four_processes_that_call_a_dead_server_probe_one_at_a_time_and_finish(tmp_path: Path) -> None:
    cli = Cli(tmp_path, {"OPENAI_API_KEY": "k"})
    cooldown_s, failures = 2.0, 3
    async with DeadServer() as server:
        cli.configure(
            f'[providers.openai]\nbase_url = "{server.url}/v1"\n[circuits]\nfailures = {failures}\n'
            f'cooldown = "2s"\n[catalog."*:fake"]\ninput_usd_per_mtok = 0\noutput_usd_per_mtok = 0\n'
        )
        runs = [
            asyncio.create_task(asyncio.to_thread(cli, "run", "Go.", "-m", "openai:fake", "--json"))
            for _ in range(4)
        ]
        await server.until(lambda _: len(server.called_s) >= failures + 4)
        # Calls that were on their way when it opened may come, one of each other session.
        opened_s = server.called_s[failures - 1]
        probes = [each for each in server.called_s if each > opened_s + 0.9 * cooldown_s]
        assert len(server.called_s) - len(probes) <= failures + 3
        gaps = [after - before for before, after in pairwise(probes)]
        assert all(gap >= 0.95 * cooldown_s for gap in gaps), gaps
        rows: list[dict[str, Any]] = [
            json.loads(line) for line in (await asyncio.to_thread(cli, "circuits", "--json")).out.splitlines()
        ]
        assert [row["state"] for row in rows] in (["open"], ["half_open"])
        server.is_mended = True
        ended = await asyncio.gather(*runs)
        assert [(each.code, each.json["status"]) for each in ended] == [(0, "done")] * 4
    (row,) = map(json.loads, (await asyncio.to_thread(cli, "circuits", "--json")).out.splitlines())
    assert (row["state"], row["failures"]) == ("closed", 0)
