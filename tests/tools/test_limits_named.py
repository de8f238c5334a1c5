"""The result of a command names the limit of its sandbox that it reached: in either one, also in the background."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.policy.protected import Own
from holdfast.protocol.fence import Finding
from holdfast.protocol.settings import Policy, Walls, changed
from holdfast.sandbox import bubblewrap, landlock
from holdfast.tools import background
from holdfast.tools.builtin import Rooms, make_tools
from tests.tools import isolated_tools
from tests.tools.conftest import Bench

MADE = {"bubblewrap": bubblewrap.make, "landlock": landlock.make}
LONG_FILE = "head -c 2M /dev/zero > big"
SPIN = "while :; do :; done"


@pytest.fixture(params=MADE)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    made = MADE[request.param]()
    if isinstance(made, Finding):
        pytest.skip(f"needs {request.param}: {made.fault}")
    workspace, home = tmp_path / "ws", tmp_path / "home"
    for folder in (workspace, home):
        folder.mkdir()
    tools = make_tools(
        [isolated_tools.takes], secret_in=lambda _: "", own=Own((str(home),)), rooms=Rooms(sandbox=made)
    )
    bench = Bench(workspace, tools)
    walls = Walls(request.param, memory_bytes=1 << 28, file_bytes=1 << 20, processes=16, cpu_s=1)
    bench.settings = changed(bench.settings, policy=Policy(walls=walls))
    yield bench
    await tools.aclose()


@pytest.mark.requirement("L11")
async def test_a_limit_is_named_whatever_a_shell_wraps_around_the_program(bench: Bench) -> None:
    for command in (LONG_FILE, f"bash -c '{LONG_FILE}; echo done'", f"sh -c '{LONG_FILE}; echo done'"):
        assert "[sandbox] file_size" in (await bench.call("shell", command=command)).text, command
    full = "head -c 1G /dev/zero | tail > /dev/null; echo done"
    assert "[sandbox] memory" in (await bench.call("shell", command=full)).text


@pytest.mark.requirement("L11", "C8")
async def test_a_process_in_the_background_is_told_its_limit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "AT_ONCE_S", 60.0)
    failed = await bench.call("shell", command=LONG_FILE, background=True)
    assert failed.status == "error"
    assert "[sandbox] file_size" in failed.text
    went_on = await bench.call("shell", command=f"{LONG_FILE}; echo done", background=True)
    assert (went_on.status, "[sandbox] file_size" in went_on.text) == ("ok", True), went_on.text
    stopped = await bench.run("process_stop", id="t1.c1")
    assert "[sandbox] file_size" in stopped.text


@pytest.mark.requirement("L11")
@pytest.mark.parametrize(("what", "limit"), [("time", "[sandbox] cpu"), ("memory", "[sandbox] memory")])
async def test_an_isolated_function_is_told_its_limit(bench: Bench, what: str, limit: str) -> None:
    told = await bench.call("takes", what=what)
    assert (told.status, limit in told.text) == ("error", True), told.detail


@pytest.mark.long
@pytest.mark.requirement("L11")
@pytest.mark.parametrize(
    "command",
    [
        SPIN,
        f"({SPIN}) | cat; echo done",
        f"x=$({SPIN}); echo done",
        f"trap '' XCPU; {SPIN}",
        f"setsid sh -c '{SPIN}' & sleep 4; echo done",
        f'python3 -c \'import subprocess; subprocess.run(["sh", "-c", "{SPIN}"])\'',
    ],
)
async def test_the_limit_of_the_processor_is_named_also_where_no_shell_tells_of_it(
    bench: Bench, command: str
) -> None:
    assert "[sandbox] cpu" in (await bench.call("shell", command=command)).text
