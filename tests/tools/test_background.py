"""Processes that go on after their call: what a page says of them, what is kept, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable

import pytest

from holdfast.errors import Lapsed
from holdfast.protocol.ports import RawResult
from holdfast.redact import make_redactor
from holdfast.sandbox import trees
from holdfast.tools import background
from holdfast.tools.background import MAX_RUNNING, Recent
from holdfast.tools.process import PAGE_CHARS
from tests.tools.conftest import SESSION, Bench

PATIENCE_S = 60.0


async def start(bench: Bench, command: str, id_: str = "t1.c1", **arguments: object) -> RawResult:
    """Start a command in the background, as the call with this id."""
    context = bench.context(call_id=id_, key=f"{SESSION}:{id_}")
    told = json.dumps({"command": command, "background": True, **arguments})
    return await bench.tools.run("shell", told, context)


async def page(bench: Bench, id_: str = "t1.c1", **arguments: object) -> str:
    return (await bench.run("process_output", id=id_, **arguments)).text


async def until(bench: Bench, is_so: Callable[[str], bool], id_: str = "t1.c1") -> str:
    """Read until the page is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so(text := await page(bench, id_)):
        assert time.monotonic() < deadline, text
        await asyncio.sleep(0.02)
    return text


def living(*ids: str) -> set[int]:
    return trees.members([f"{SESSION}:{each}" for each in ids or ("t1.c1",)])


@pytest.mark.requirement("C8", "B2")
async def test_a_process_goes_on_after_its_call_and_is_read_page_by_page(bench: Bench) -> None:
    started = await start(bench, "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; sleep 1000")
    assert started.status == "ok"
    assert 'process_output(id="t1.c1")' in started.text
    assert "the end of the run, which comes with your answer" in started.text
    assert started.background is not None
    assert (started.background.id, started.background.is_over) == ("t1.c1", False)
    assert await until(bench, lambda text: "one" in text) == "one\n[still running; read on with offset=4]"
    assert living()
    (bench.workspace / "go").touch()
    assert await page(bench, offset=4) == "[from character 4]\ntwo\n[still running; read on with offset=8]"
    stopped = await bench.run("process_stop", id="t1.c1")
    assert stopped.text == "[stopped; it printed 8 characters]"
    assert stopped.background is not None
    assert stopped.background.is_over
    assert not living()
    assert await page(bench, offset=0) == "one\ntwo\n[stopped; no more output]"
    again = await bench.run("process_stop", id="t1.c1")
    assert (again.status, again.text) == ("ok", "[had ended before: stopped; it printed 8 characters]")


@pytest.mark.requirement("L11")
async def test_a_page_says_that_a_process_has_lost_its_network(bench: Bench) -> None:
    await start(bench, "echo one; sleep 1000")
    assert await until(bench, lambda text: "one" in text) == "one\n[still running; read on with offset=4]"
    processes = bench.tools._background
    processes.of(SESSION)["t1.c1"].may_be_cut = True
    processes.cut(SESSION)
    assert await page(bench) == f"one\n[{background.CUT}]\n[still running; read on with offset=4]"
    assert background.CUT in await page(bench, offset=4)


async def test_a_process_that_fails_at_once_is_a_call_that_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "AT_ONCE_S", PATIENCE_S)
    failed = await start(bench, "echo 'no such port' >&2; exit 3")
    assert (failed.status, failed.text) == ("error", "no such port\n[exit code 3; no more output]")
    assert failed.background is None
    ended = await start(bench, "echo quick", "t1.c2")
    assert (ended.status, ended.text) == ("ok", "quick\n[exit code 0; no more output]")
    assert [*bench.tools.in_background(SESSION)] == []


@pytest.mark.requirement("C8")
async def test_nothing_is_left_of_a_process_that_hides_its_children(bench: Bench) -> None:
    """They leave the session, lose their parent and have no variable that names the call."""
    hidden = "env -i setsid sh -c 'sleep 1000 & echo $! > pid' & sleep 1000"
    await start(bench, hidden)
    deadline = time.monotonic() + PATIENCE_S
    while not (bench.workspace / "pid").exists() or not (bench.workspace / "pid").read_text().strip():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    pid = int((bench.workspace / "pid").read_text())
    os.kill(pid, 0)
    await bench.tools.end_background(SESSION)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not living()
    assert "Nothing was started" in await page(bench)


@pytest.mark.requirement("C8")
async def test_when_the_runtime_closes_they_end(bench: Bench) -> None:
    await start(bench, "sleep 1000")
    await start(bench, "sleep 1000", "t1.c2")
    assert [*bench.tools.in_background(SESSION)] == ["t1.c1", "t1.c2"]
    await bench.tools.aclose()
    assert not living("t1.c1", "t1.c2")


async def test_a_session_has_at_most_eight_that_run(bench: Bench) -> None:
    assert MAX_RUNNING == 8
    ids = [f"t1.c{number}" for number in range(1, MAX_RUNNING + 2)]
    for each in ids[:-1]:
        assert (await start(bench, "sleep 1000", each)).status == "ok"
    refused = await start(bench, "touch ninth", ids[-1])
    assert refused.status == "error"
    assert "process_stop" in refused.text
    assert not (bench.workspace / "ninth").exists()
    await bench.run("process_stop", id=ids[0])
    assert (await start(bench, "sleep 1000", ids[-1])).status == "ok"
    assert len([*bench.tools.in_background(SESSION)]) == MAX_RUNNING


async def test_of_those_that_ended_only_the_last_are_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "AT_ONCE_S", PATIENCE_S)
    for number in range(MAX_RUNNING + 3):
        await start(bench, f"echo {number}", f"t{number}.c1")
    assert "no process t0.c1" in await page(bench, "t0.c1")
    assert (await page(bench, f"t{MAX_RUNNING + 2}.c1")).startswith(f"{MAX_RUNNING + 2}\n")


async def test_reading_waits_for_output_that_is_not_there_yet(bench: Bench) -> None:
    await start(bench, "echo a; while [ ! -e go ]; do sleep 0.02; done; echo b; exit 4")
    await until(bench, lambda text: text.startswith("a\n"))
    reading = asyncio.create_task(page(bench, offset=2))
    await asyncio.sleep(0.3)
    assert not reading.done()
    (bench.workspace / "go").touch()
    assert "b\n" in await reading
    assert await until(bench, lambda text: "exit code" in text) == "a\nb\n[exit code 4; no more output]"
    assert (await bench.run("process_output", id="t1.c1")).background is not None


async def test_a_reading_that_waits_hears_of_the_end(bench: Bench) -> None:
    await start(bench, "while [ ! -e go ]; do sleep 0.02; done")
    reading = asyncio.create_task(page(bench, offset=0))
    await asyncio.sleep(0.2)
    (bench.workspace / "go").touch()
    assert await asyncio.wait_for(reading, 5) == "[exit code 0; no more output]"


async def test_a_process_has_the_limit_that_its_call_names_and_else_none(bench: Bench) -> None:
    await start(bench, "sleep 1000", timeout_s=0.5)
    assert await until(bench, lambda text: "killed" in text) == "[killed after 0.5 s; no more output]"
    assert not living()


async def test_an_unknown_id_is_told_which_ones_there_are(bench: Bench) -> None:
    await start(bench, "echo one; sleep 1000")
    found = await bench.run("process_output", id="t7.c7")
    assert found.status == "error"
    assert "There are t1.c1 (still running)." in found.text
    other = await bench.tools.run("process_output", '{"id":"t1.c1"}', bench.context(session="another"))
    assert other.status == "error"
    assert "t1.c1 (" not in other.text
    stopped = await bench.tools.run("process_stop", '{"id":"t1.c1"}', bench.context(session="another"))
    assert stopped.status == "error"
    assert await until(bench, lambda text: "one" in text) == "one\n[still running; read on with offset=4]"


@pytest.mark.requirement("A4")
async def test_a_secret_is_masked_wherever_reading_begins(bench: Bench) -> None:
    secret = "correct-horse" + "-battery-staple"
    context = bench.context(capabilities=(make_redactor([secret]),))
    command = f"for part in {secret[:9]} {secret[9:]}; do printf %s $part; sleep 0.2; done; echo; sleep 1000"
    await bench.tools.run("shell", json.dumps({"command": command, "background": True}), context)
    whole = await until(bench, lambda text: "redacted" in text)
    assert secret[:9] not in whole
    for offset in range(len(secret)):
        text = await page(bench, offset=offset)
        assert text.startswith(f"{f'[from character {offset}]' if offset else ''}".strip() or "[redacted")
        assert "[redacted:known]\n" in text
        assert secret[-4:] not in text


@pytest.mark.requirement("A4")
async def test_the_beginning_of_a_secret_is_withheld_until_it_is_whole(bench: Bench) -> None:
    secret = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    command = (
        f"printf 'now {secret[:14]}'; while [ ! -e go ]; do sleep 0.02; done; echo {secret[14:]}; sleep 1000"
    )
    await start(bench, command)
    assert await until(bench, lambda text: "now" in text) == "now \n[still running; read on with offset=4]"
    (bench.workspace / "go").touch()
    rest = await page(bench, offset=4)
    assert rest.startswith("[from character 4]\n[redacted:")
    assert secret[14:] not in rest


@pytest.mark.requirement("H5")
async def test_a_process_is_not_started_without_the_lease(bench: Bench) -> None:
    def lapsed() -> int:
        raise Lapsed

    with pytest.raises(Lapsed):
        await bench.tools.run(
            "shell", '{"command":"touch here","background":true}', bench.context(check=lapsed)
        )
    assert not (bench.workspace / "here").exists()
    assert [*bench.tools.in_background(SESSION)] == []


@pytest.mark.requirement("C8")
async def test_a_call_that_is_cancelled_while_it_starts_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "AT_ONCE_S", PATIENCE_S)
    starting = asyncio.create_task(start(bench, "touch begun; sleep 1000"))
    deadline = time.monotonic() + PATIENCE_S
    while not (bench.workspace / "begun").exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not living()
    assert [*bench.tools.in_background(SESSION)] == []


async def test_a_process_that_floods_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await start(bench, f"head -c {70 << 20} /dev/zero | tr '\\0' '\\n'; sleep 1000")
    text = await until(bench, lambda text: "killed" in text)
    assert text.endswith("[killed after printing more than 64 MiB; no more output]")
    assert not living()


async def test_only_the_end_of_a_long_output_is_kept_and_a_page_says_so(bench: Bench) -> None:
    await start(bench, "seq 1 400000; echo end; sleep 1000")
    last = await until(bench, lambda text: "\nend\n" in text)
    assert len(last) < PAGE_CHARS + 200
    first = await page(bench, offset=0)
    assert " characters before this are no longer kept]\n" in first
    assert " characters follow: offset=" in first
    following = int(first.rsplit("offset=", 1)[1].rstrip("]"))
    second = await page(bench, offset=following)
    numbers = [
        line for text in (first, second) for line in text.splitlines() if line.isdecimal() and len(line) == 6
    ]
    assert len(numbers) > 2_000


def test_what_is_kept_is_what_came_last_however_it_came() -> None:
    for size in (1, 100, 5_000, 70_000):
        recent, whole = Recent(), ""
        for number in range(3 * background.KEPT_CHARS // size if size > 1 else 20_000):
            piece = chr(97 + number % 26) * size
            recent.add(piece)
            whole += piece
        assert recent.end == len(whole)
        assert recent.end - recent.begin >= min(background.KEPT_CHARS, len(whole))
        assert recent.end - recent.begin < background.KEPT_CHARS + 70_000 + 4_096
        assert recent.whole() == whole[recent.begin :]
