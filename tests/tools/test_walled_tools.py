"""Whatever tools start runs in a fence where there is a sandbox, and works there."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.access.credentials import Credentials
from holdfast.config.settings import SecretUse
from holdfast.policy.protected import Own
from holdfast.protocol.fence import Backend
from holdfast.protocol.settings import Autonomy, Policy, Unproved, Walls, changed
from holdfast.protocol.tools import Admission, Allowed, Asked
from holdfast.protocol.trust import Mark, Taint
from holdfast.sandbox import bubblewrap
from holdfast.sandbox.bubblewrap import Bubblewrap
from holdfast.tools.builtin import Rooms, make_tools
from holdfast.tools.web import Web
from tests.tools import isolated_tools
from tests.tools.conftest import Bench
from tests.tools.web_server import response, web_server

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

BAIT = "a-bait-that-nobody-may-read"


def git(*arguments: str | Path) -> None:
    subprocess.run(["git", *arguments], check=True)


@pytest.fixture
async def walled(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bubblewrap.make()
    assert isinstance(made, Bubblewrap)
    workspace, home = tmp_path / "ws", tmp_path / "home"
    for folder in (workspace, home):
        folder.mkdir()
    tools = make_tools(
        [isolated_tools.reads, isolated_tools.fetches],
        secret_in=lambda _: "",
        own=Own((str(home),)),
        rooms=Rooms(sandbox=made),
    )
    yield Bench(workspace, tools)
    await tools.aclose()


@pytest.mark.requirement("L2", "L12")
async def test_an_isolated_function_sees_what_commands_see_and_no_variable_of_its_starter(
    walled: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "x")
    for place in (tmp_path / "outside", walled.workspace / ".env", walled.workspace / "plain"):
        place.write_text(BAIT)
    for path, is_seen in ((tmp_path / "outside", False), (walled.workspace / ".env", False), ("plain", True)):
        told = await walled.run("reads", path=str(path))
        assert told.status == "ok", told
        assert (BAIT in told.text) == is_seen
        assert "OTHER_API_KEY" not in told.text


@pytest.mark.requirement("L2")
async def test_an_isolated_function_reaches_listed_hosts_and_its_requests_are_returned(walled: Bench) -> None:
    async with web_server() as server:
        server.answers["/"] = response("hello")
        here = f"127.0.0.1:{server.port}"
        policy = Policy(walls=Walls("bubblewrap"), allowed_hosts=(here,))
        walled.settings = changed(walled.settings, policy=policy)
        got, refused = await walled.call("fetches", host=here), await walled.call("fetches", host="b.example")
    assert (got.status, got.text) == ("ok", "hello"), got
    assert [each.verdict for each in got.requests.exchanges] == ["allowed"]
    assert refused.status == "error"
    assert "b.example:80 is not listed in [network] allow" in refused.detail
    assert [each.verdict for each in refused.requests.exchanges] == ["refused"]


@pytest.mark.requirement("S7", "L2")
async def test_an_isolated_function_sends_a_placeholder_for_which_the_host_gets_the_secret(
    tmp_path: Path,
) -> None:
    made = bubblewrap.make()
    assert isinstance(made, Bubblewrap)
    (tmp_path / "ws").mkdir()
    async with web_server() as server:
        server.answers["/"] = response("hello")
        here = f"127.0.0.1:{server.port}"
        use = SecretUse(hosts=(here,), env="API_TOKEN")
        tools = make_tools(
            [isolated_tools.sends_token],
            secret_in=lambda _: "",
            own=Own(),
            rooms=Rooms(sandbox=made),
            web=Web(credentials=Credentials({"MINE": use}, lambda _: BAIT)),
        )
        bench = Bench(tmp_path / "ws", tools)
        policy = Policy(walls=Walls("bubblewrap"), allowed_hosts=(here,))
        bench.settings = changed(bench.settings, policy=policy)
        told = [await bench.call("sends_token", host=here) for _ in range(2)]
        await tools.aclose()
    assert [heard.headers["authorization"] for heard in server.heard] == [f"Bearer {BAIT}"] * 2
    sent, others = ([each.text.partition(" ")[at] for each in told] for at in (0, 2))
    assert others == ["hello", "hello"], told
    assert all(mark.startswith("holdfast-placeholder-") for mark in sent)
    assert len(set(sent)) == 2, "a new one for each call"


@pytest.mark.requirement("L2")
async def test_the_programs_of_tools_do_their_work_in_their_fences(walled: Bench, tmp_path: Path) -> None:
    git("init", "-q", walled.workspace)
    (walled.workspace / "a.txt").write_text("one needle\n")
    (tmp_path / "home" / "journal").write_text("a needle")
    (walled.workspace / "linked.txt").hardlink_to(tmp_path / "home" / "journal")
    assert "a.txt:1: one needle" in (await walled.call("grep", pattern="needle")).text
    assert "linked.txt" not in (await walled.call("grep", pattern="needle")).text
    assert "?? a.txt" in (await walled.call("git_status")).text
    assert (await walled.call("shell", command="cat a.txt")).text == "one needle\n"


@pytest.mark.requirement("L2")
async def test_git_borrows_objects_of_another_repository_in_its_fence(walled: Bench, tmp_path: Path) -> None:
    lender, top = tmp_path / "lender", tmp_path / "lent"
    git("init", "-q", lender)
    (lender / "below").mkdir()
    (lender / "below" / "a.txt").write_text("x")
    git("-C", lender, "add", "-A")
    git("-C", lender, "-c", "user.name=n", "-c", "user.email=e@x", "commit", "-qm", "a loan")
    git("clone", "-q", "--shared", lender, top)
    told = await Bench(top / "below", walled.tools).call("git_log")
    assert "a loan" in told.text
    # What a command can change could name any repository.
    git("-C", top, "worktree", "add", "-q", tmp_path / "tree")
    told = await Bench(tmp_path / "tree", walled.tools).call("git_log")
    assert (told.status, "a loan" in told.text) == ("error", False)


@pytest.mark.requirement("C14", "H4", "C12")
@pytest.mark.parametrize("backend", ["bubblewrap", "unsafe"])
@pytest.mark.parametrize(("autonomy", "sandboxed"), [("full", "ask"), ("supervised", "allow")])
async def test_after_untrusted_text_an_unknown_program_runs_cut_off_in_a_sandbox_and_asks_without_one(
    walled: Bench,
    bench: Bench,
    backend: Backend,
    autonomy: Autonomy,
    sandboxed: Unproved,
) -> None:
    used = walled if backend == "bubblewrap" else bench
    policy = Policy(walls=Walls(backend), allowed_hosts=("a.example",), sandboxed=sandboxed)
    used.settings = changed(used.settings, policy=policy, autonomy=autonomy)
    taint = Taint(Mark(4, "web_fetch"), Mark(7, "read_file"))

    async def judged(command: str, *, is_approved: bool = False) -> Admission:
        proposal = used.proposal("shell", json.dumps({"command": command}), is_approved)
        return await used.tools.admit(replace(proposal, taint=taint))

    got = await judged("make")
    if backend == "unsafe":
        assert isinstance(got, Asked)
        assert "taint:command" in [each.rule for each in got.decisions]
    else:
        assert isinstance(got, Allowed)
        assert got.walled is not None
        assert (got.walled.backend, got.walled.network) == ("bubblewrap", "none")
        assert "taint:cut" in [each.rule for each in got.decisions]
    assert isinstance(await judged("curl https://a.example/"), Asked)
    local = await judged("ls -la")
    assert isinstance(local, Allowed), "what is proved local runs everywhere"
    approved = await judged("git push https://a.example/x", is_approved=True)
    assert isinstance(approved, Allowed)
    network = approved.walled.network if approved.walled is not None else "no sandbox"
    assert network == ("all" if backend == "unsafe" else "proxy")


@pytest.mark.requirement("L2", "C14")
@pytest.mark.parametrize("is_approved", [False, True])
async def test_untrusted_text_cuts_off_what_runs_in_the_background_unless_a_person_approved_it(
    walled: Bench, is_approved: bool
) -> None:
    async with web_server() as server:
        server.answers["/"] = response("hello")
        policy = Policy(walls=Walls("bubblewrap"), allowed_hosts=(f"127.0.0.1:{server.port}",))
        walled.settings = changed(
            walled.settings, policy=policy, autonomy="supervised" if is_approved else "full"
        )
        wait = f"until [ -e go ]; do sleep 0.02; done; curl -sS {server.url('/')}; echo over"
        admitted = await walled.admit("shell", is_approved, command=wait, background=True)
        assert isinstance(admitted, Allowed)
        context = walled.context(policy=policy, walled=admitted.walled)
        assert (
            "running in the background" in (await walled.tools.run("shell", admitted.arguments, context)).text
        )
        untrusted = Taint(untrusted=Mark(4, "web_fetch"))
        await walled.tools.admit(replace(walled.proposal("list_dir"), taint=untrusted))
        (walled.workspace / "go").touch()
        told = await walled.run("process_output", id=context.call_id, offset=0)
        while "over" not in told.text:
            told = await walled.run("process_output", id=context.call_id, offset=0)
        assert ("hello" in told.text) == is_approved
        assert len(server.heard) == is_approved
