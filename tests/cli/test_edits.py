"""What a run shows of its edits, while it works."""

from __future__ import annotations

import pytest

from holdfast.cli.edits import FOLDED_LINES
from holdfast.views.diffs import MOST_LINES, file_diff
from tests.cli.processes import Cli, calls, says

SECRET = "sk-proj-" + "a1B2c3D4" * 6


def write(path: str, content: str) -> dict[str, object]:
    return calls("write_file", path=path, content=content)


@pytest.mark.requirement("S1")
def test_each_edit_is_shown_as_a_diff_right_after_its_call(cli: Cli) -> None:
    (cli.workspace / "poem.txt").write_text("roses are red\nviolets are blue\n")
    edit = calls("edit_file", path="poem.txt", old="red", new="white")
    ended = cli("run", "edit", "-m", cli.model(edit, write("new.txt", "fresh\n"), says("Edited.")))
    lines = ended.err.splitlines()
    at = next(number for number, line in enumerate(lines) if "edit_file poem.txt" in line)
    assert lines[at + 1 : at + 7] == [
        "    --- a/poem.txt", "    +++ b/poem.txt", "    @@ -1,2 +1,2 @@",
        "    -roses are red", "    +roses are white", "     violets are blue",
    ]  # fmt: skip
    assert "    +fresh" in lines
    assert "    --- /dev/null" in lines


def test_a_long_diff_is_folded_and_says_where_all_of_it_is(cli: Cli) -> None:
    content = "".join(f"line {number}\n" for number in range(100))
    ended = cli("run", "write", "-m", cli.model(write("long.txt", content), says("Written.")))
    shown = [line for line in ended.err.splitlines() if line.startswith("    ")]
    assert len(shown) == FOLDED_LINES + 1
    assert "63 more lines: " in shown[-1]
    command = shown[-1].partition("holdfast ")[2].split()
    assert "+line 99" in cli(*command).out


def test_a_diff_has_no_secrets_and_nothing_that_a_terminal_would_act_on(cli: Cli) -> None:
    (cli.workspace / "it.txt").write_text(f"key = {SECRET}\nplain\n")
    edit = calls("edit_file", path="it.txt", old="plain", new="\x1b[2Jcleared")
    with cli.emulator("run", "edit", "-m", cli.model(edit, says("Edited."))) as screen:
        screen.until("Edited.")
        assert screen.end() == 0
    assert "     key = [redacted" in screen.text
    assert SECRET not in screen.text
    assert r"+\x1b[2Jcleared" in screen.text


def test_a_quiet_run_shows_no_diffs_and_a_failed_edit_has_none(cli: Cli) -> None:
    assert (
        "fresh"
        not in cli("run", "write", "-q", "-m", cli.model(write("a.txt", "fresh\n"), says("Written."))).err
    )
    missing = calls("edit_file", path="b.txt", old="x", new="y")
    assert "---" not in cli("run", "edit", "-m", cli.model(missing, says("No."), name="other")).err


def test_files_with_too_many_lines_are_not_compared() -> None:
    found = file_diff("long.txt", b"a\n" * (MOST_LINES + 1), b"b\n", str)
    assert found.diff == f"long.txt: too long to compare, {MOST_LINES + 1:,} lines before, 1 after.\n"
