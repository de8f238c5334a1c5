"""The values of the workspace's secret files, through the whole program: stored, shown and sent nowhere."""

from __future__ import annotations

import json

import pytest

from tests.cli.processes import Cli, Ended, calls, says

VALUE = "plum-tree" + "-under-7-moons"
PRINTS = calls("shell", command="python3 print_it.py")

pytestmark = pytest.mark.requirement("A4")


@pytest.fixture
def desk(cli: Cli) -> Cli:
    (cli.workspace / ".env").write_text(f"DEBUG=true\nPORT=8080\nAPI_TOKEN={VALUE}\n")
    (cli.workspace / "print_it.py").write_text("print(open('.env').read())\n")
    return cli


def ran(cli: Cli, *lines: dict[str, object], text: str = "x") -> Ended:
    return cli("run", text, "-m", cli.model(*lines), "--autonomy", "full", "--stream-json")


def everything(cli: Cli, done: Ended) -> str:
    """All that was printed, is stored, and can be shown, with the requests."""
    shown = [cli("show", "last", "--events", "--json"), cli("show", "last", "--tools", "--json")]
    shown.append(cli("show", "last", "--request", "1"))
    files = [path.read_bytes().decode(errors="replace") for path in cli.home.rglob("*") if path.is_file()]
    assert files
    return "\n".join([done.out, done.err, *files, *(each.out + each.err for each in shown)])


def test_what_a_command_prints_of_a_secret_file_is_masked_everywhere(desk: Cli) -> None:
    done = ran(desk, PRINTS, says(f"It is {VALUE}."))
    assert done.code == 0
    found = everything(desk, done)
    assert VALUE not in found
    assert "API_TOKEN=[redacted:known]" in found
    assert "DEBUG=true" in found
    assert "PORT=8080" in found
    assert VALUE not in desk("show", "last", "--request", "2").out


def test_a_value_that_the_user_types_is_masked(desk: Cli) -> None:
    found = everything(desk, ran(desk, says("Done."), text=f"Is {VALUE} right, with DEBUG=true?"))
    assert VALUE not in found
    assert "Is [redacted:known] right, with DEBUG=true?" in found


def test_a_call_with_a_value_is_refused_by_its_name(desk: Cli) -> None:
    done = ran(desk, calls("write_file", path="a.txt", content=f"so {VALUE} is"), says("Done."))
    found = everything(desk, done)
    assert VALUE not in found
    assert "contain the value of the secret .env:API_TOKEN" in found
    assert not (desk.workspace / "a.txt").exists()


def test_a_file_that_a_call_writes_is_known_when_its_output_is_stored(cli: Cli) -> None:
    makes = "v = '-'.join(['plum-tree', 'under', '7', 'moons'])"
    code = f"{makes}; open('.env', 'w').write('API_TOKEN=' + v); print(v)\n"
    (cli.workspace / "make_it.py").write_text(code)
    done = ran(cli, calls("shell", command="python3 make_it.py"), says("Done."))
    rows = [json.loads(line) for line in cli("show", "last", "--events", "--json").out.splitlines()]
    assert done.code == 0
    assert VALUE in (cli.workspace / ".env").read_text()
    assert VALUE not in json.dumps(rows)
    assert "[redacted:known]" in json.dumps(rows)


def test_redact_uses_the_files_of_its_folder(desk: Cli) -> None:
    assert desk("redact", stdin=f"a {VALUE} b DEBUG=true\n").out == "a [redacted:known] b DEBUG=true\n"


def test_a_check_of_the_policy_names_the_value(desk: Cli) -> None:
    checked = desk("policy", "check", "--command", f"echo {VALUE}", "--json")
    assert VALUE not in checked.out
    assert ".env:API_TOKEN" in checked.out


def test_a_diff_masks_a_value_in_the_lines_around_a_change(desk: Cli) -> None:
    (desk.workspace / "conf.txt").write_text(f"one\n{VALUE}\nthree\n")
    done = ran(desk, calls("edit_file", path="conf.txt", old="three", new="3"), says("Done."))
    shown = desk("show", "last", "--diff")
    (desk.workspace / "conf.txt").write_text(f"one\n{VALUE}\nfour\n")
    undone = desk("undo", "last")
    assert (done.code, "+3" in shown.out, "four" in undone.out + undone.err) == (0, True, True)
    assert VALUE not in "".join(each.out + each.err for each in (done, shown, undone))


def test_a_file_that_changes_while_a_run_waits_is_known_to_the_answer(desk: Cli) -> None:
    waits = desk(
        "run",
        "x",
        "-m",
        desk.model(calls("shell", command="python3 it.py"), says("Done.")),
        "--approve-by",
        "wait",
    )
    approval = json.loads(desk("approvals", "--json").out.splitlines()[0])["id"]
    other = VALUE.replace("plum", "pear")
    (desk.workspace / ".env").write_text(f"API_TOKEN={other}\n")
    denied = desk("deny", approval, "--note", f"Not with {other}.")
    assert other not in everything(desk, denied) + waits.out
    assert "Not with [redacted:known]." in everything(desk, denied)
