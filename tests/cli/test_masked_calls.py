"""Calls whose arguments look as if they held a secret, through the whole program: killed, approved from elsewhere,
and shown."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cli.conftest import Holdfast
from tests.cli.processes import Cli, calls, says

SECRET = "Tr0ub4dor" + "-and-3"
CODE = f'user = "me"\npassword = "{SECRET}"\n'
BEFORE = "TO BE FILLED IN\n"
WAYS: dict[str, dict[str, Any]] = {
    "write_file": calls("write_file", path="conf.py", content=CODE),
    "edit_file": calls("edit_file", path="conf.py", old=BEFORE, new=CODE),
    "shell": calls("shell", command=f"cat > conf.py <<'END'\n{CODE}END"),
}
PATCH = f"--- a/conf.py\n+++ b/conf.py\n@@ -1 +1,2 @@\n-{BEFORE}" + "".join(
    f"+{line}\n" for line in CODE.splitlines()
)
WAYS["apply_patch"] = calls("apply_patch", patch=PATCH)
each_way = pytest.mark.parametrize(
    "way", [each if each != "apply_patch" else pytest.param(each, marks=pytest.mark.long) for each in WAYS]
)
VIEWS = [
    [],
    ["--json"],
    ["--tools"],
    ["--tools", "--json"],
    ["--timeline"],
    ["--timeline", "--json"],
    ["--events"],
    ["--events", "--json"],
]


@pytest.fixture
def desk(cli: Cli) -> Cli:
    (cli.workspace / "conf.py").write_text(BEFORE)
    return cli


def the_file(cli: Cli) -> str:
    return (cli.workspace / "conf.py").read_text()


def events(cli: Cli) -> list[dict[str, Any]]:
    """All records of the newest session."""
    return [json.loads(line) for line in cli("show", "last", "--events", "--json").out.splitlines()]


def abandoned(cli: Cli) -> list[str]:
    """What the model was told of its calls that were given up."""
    return [row["body"]["text"] for row in events(cli) if row["type"] == "ToolCallAbandoned"]


def is_secret_anywhere(cli: Cli) -> bool:
    """Whether any file of the home holds it, except what is kept of the edited files themselves."""
    kept = cli.home / "files"
    files = [path for path in cli.home.rglob("*") if path.is_file() and not path.is_relative_to(kept)]
    return any(SECRET.encode() in path.read_bytes() for path in files)


@pytest.mark.requirement("A4", "C3", "H5")
@each_way
def test_every_view_says_that_a_copy_is_masked_and_shows_nothing_of_the_secret(
    desk: Cli, way: str, holdfast: Holdfast
) -> None:
    ran = desk("run", "x", "-m", desk.model(WAYS[way], says("Done.")), "--autonomy", "full")
    assert (ran.code, the_file(desk)) == (0, CODE)
    assert "masked" in ran.err
    assert SECRET not in ran.out + ran.err
    for view in VIEWS:
        shown = holdfast("show", "last", *view, "--home", str(desk.home))
        assert "masked" in shown.out + shown.err, view
        assert SECRET not in shown.out + shown.err, view
    sent = desk("show", "last", "--request", "2")
    assert "masked copy" in sent.err
    assert "[redacted:password]" in sent.out
    assert SECRET not in sent.out
    assert not is_secret_anywhere(desk)


@pytest.mark.requirement("A4", "C3", "H5", "B4")
@each_way
def test_a_call_that_waits_behind_one_that_is_killed_never_runs_from_its_copy(desk: Cli, way: str) -> None:
    (hidden,) = WAYS[way]["tool_calls"]
    (slow,) = calls("shell", command="echo begun; sleep 600")["tool_calls"]
    model = desk.model({"tool_calls": [slow, hidden]}, {"tool_calls": [hidden]}, says("Done."))
    with desk.working("run", "x", "-m", model, "--autonomy", "full") as run:
        run.until_type("ToolCallStarted")
        run.end(signal.SIGKILL)
    assert desk("resume", "last").code == 0
    interrupted, lost = abandoned(desk)
    assert "outcome of this call is unknown" in interrupted
    assert lost.startswith("This call did not run: its arguments contained what looks like a secret")
    assert "make it again" in lost
    assert the_file(desk) == CODE, "the model made it again"
    assert not is_secret_anywhere(desk)


@pytest.mark.requirement("A4", "C3", "H5", "B4")
def test_a_call_that_is_killed_while_it_runs_is_not_repeated(desk: Cli) -> None:
    command = f"echo '{SECRET}' >> conf.py; password='{SECRET}' sleep 600"
    model = desk.model(calls("shell", command=command), says("Done."))
    with desk.working("run", "x", "-m", model, "--autonomy", "full") as run:
        run.until_type("ToolCallStarted")
        while SECRET not in the_file(desk):
            pass
        run.end(signal.SIGKILL)
    assert desk("resume", "last").code == 0
    (told,) = abandoned(desk)
    assert "outcome of this call is unknown" in told
    assert the_file(desk) == f"{BEFORE}{SECRET}\n"
    assert not is_secret_anywhere(desk)


@pytest.mark.requirement("A4", "C3", "H5", "B4")
def test_an_approval_that_comes_when_the_process_is_gone_abandons_the_call(desk: Cli) -> None:
    model = desk.model(WAYS["shell"], says("Done.", when="make it again"))
    assert desk("run", "x", "-m", model).code == 5
    listed = desk("approvals")
    row = json.loads(desk("approvals", "--json").out)
    assert row["is_masked"]
    assert "masked copy" in " ".join(listed.out.split())
    assert SECRET not in listed.out + json.dumps(row)
    approved = desk("approve", row["id"])
    assert SECRET not in approved.out + approved.err
    assert desk("resume", "last").out == "Done.\n"
    assert the_file(desk) == BEFORE
    assert len(abandoned(desk)) == 1
    assert not is_secret_anywhere(desk)


@pytest.mark.requirement("A4", "C3", "H5", "B4")
def test_an_approval_from_another_process_runs_the_call_where_its_original_is(desk: Cli) -> None:
    model = desk.model(WAYS["shell"], says("Done."))
    with desk.terminal("run", "x", "-m", model, "--approve-by", "prompt") as screen:
        screen.until("Approve it?")
        row = json.loads(desk("approvals", "--json").out)
        assert desk("approve", row["id"]).code == 0
        screen.until("Done.")
        assert screen.end() == 0
    assert the_file(desk) == CODE
    assert "masked copy" in " ".join(screen.screen.split())
    assert SECRET not in screen.screen
    assert not is_secret_anywhere(desk)


@pytest.mark.requirement("A4", "C3", "H5", "B4")
@pytest.mark.parametrize("where", ["the second", "the first", "a third"])
def test_of_two_that_wait_at_a_prompt_the_one_with_the_original_runs_the_call(desk: Cli, where: str) -> None:
    model = desk.model(WAYS["shell"], says("Done."))
    with desk.terminal("run", "x", "-m", model, "--approve-by", "prompt") as first:
        first.until("Approve it?")
        with desk.terminal("resume", "last") as second:
            second.until("Approve it?")
            if where == "a third":
                assert desk("approve", json.loads(desk("approvals", "--json").out)["id"]).code == 0
            else:
                (second if where == "the second" else first).type("y\n")
            for screen in (first, second):
                screen.until("Done.")
                assert screen.end() == 0
    assert "does not have what the model wrote" in " ".join(second.screen.split())
    assert the_file(desk) == CODE
    assert abandoned(desk) == []
    assert not is_secret_anywhere(desk)


@pytest.mark.requirement("A4", "C3", "H5", "B4")
def test_who_resumes_when_the_original_is_gone_is_told_so_before_deciding(desk: Cli) -> None:
    assert desk("run", "x", "-m", desk.model(WAYS["shell"], says("Done.", when="make it again"))).code == 5
    with desk.terminal("resume", "last", "--approve-by", "prompt") as screen:
        screen.until("Approve it?")
        screen.type("y\n")
        screen.until("Done.")
        assert screen.end() == 0
    assert "does not have what the model wrote" in " ".join(screen.screen.split())
    assert (len(abandoned(desk)), the_file(desk)) == (1, BEFORE)
