"""Twelve ways to be stuck end by themselves, and honest work does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

import pytest

from holdfast.protocol import events as e
from holdfast.protocol.tools import KNOWN
from holdfast.testing.clock import JumpingClock, run_jumping
from holdfast.tools.function import tool
from tests.scenarios.lives import MOST_TURNS, Line, Lived, asks, live, lived, reads, runs, writes

LATEST_TURN = 45
MOST_NOTES = 2

pytestmark = pytest.mark.requirement("C4")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a few files."""
    folder = tmp_path / "ws"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.txt").write_text(f"this is {name}\n" * 5)
    return folder


def rounds(*lines: Line) -> list[Line]:
    """The lines again and again, for all turns of a run."""
    return [*islice(cycle(lines), MOST_TURNS)]


def script(workspace: Path, name: str, text: str) -> None:
    (workspace / name).write_text(text)


def stuck(workspace: Path, lines: Sequence[Line], reason: str = "stall") -> Lived:
    """Run it, and hold that it ends as stuck in time, after the model was told."""
    run = lived(workspace, lines)
    assert (run.status, run.reason) == ("stuck", reason), run.results[-3:]
    assert run.turns <= LATEST_TURN
    assert run.notes
    return run


def honest(run: Lived, turns: int) -> None:
    """Hold that the run was not stopped, and hardly disturbed."""
    assert (run.status, run.reason) == ("done", "answer"), run.results[-3:]
    assert run.turns == turns + 1
    assert len(run.notes) <= MOST_NOTES, run.notes


# --- twelve ways to be stuck --------------------------------------------------------------------


def test_reading_the_same_file_again_and_again_is_stuck(workspace: Path) -> None:
    stuck(workspace, rounds(reads("a.txt")), "repeat")


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_reading_a_few_files_in_rotation_is_stuck(workspace: Path, names: str) -> None:
    stuck(workspace, rounds(*[reads(f"{name}.txt") for name in names]))


def test_reading_a_file_in_other_spellings_is_stuck(workspace: Path) -> None:
    spellings = ["a.txt", "./a.txt", "x/../a.txt", str(workspace / "a.txt")]
    (workspace / "x").mkdir()
    run = stuck(workspace, rounds(*map(reads, spellings)))
    assert run.turns == 25, "after the first read, nothing is new"


def test_the_same_error_again_and_again_is_stuck(workspace: Path) -> None:
    stuck(workspace, rounds(reads("missing.txt")), "repeat")


def test_two_errors_in_turn_are_stuck(workspace: Path) -> None:
    stuck(workspace, rounds(runs("python3 -c 'import nothing_such'"), runs("false")))


def test_errors_that_differ_only_in_a_path_are_stuck(workspace: Path) -> None:
    stuck(workspace, [reads(f"missing-{number}.txt") for number in range(MOST_TURNS)])
    stuck(workspace, [runs(f"cat missing-{number}.txt") for number in range(MOST_TURNS)])


def test_rewriting_one_file_back_and_forth_is_stuck(workspace: Path) -> None:
    run = stuck(workspace, rounds(writes("f.txt", "one"), writes("f.txt", "two")))
    assert run.turns == 26
    stuck(workspace, rounds(runs("echo one > g.txt"), runs("echo two > g.txt")))
    edits = [
        asks(("edit_file", {"path": "f.txt", "old": old, "new": new}))
        for old, new in [("two", "one"), ("one", "two")]
    ]
    stuck(workspace, rounds(*edits))


def test_touching_files_without_changing_them_is_stuck(workspace: Path) -> None:
    stuck(
        workspace,
        rounds(runs("touch a.txt b.txt"), runs("touch  a.txt  # once more"), runs("cp -p c.txt d.txt")),
    )


def test_listing_again_and_again_is_stuck(workspace: Path) -> None:
    stuck(
        workspace,
        rounds(asks(("list_dir", {})), asks(("list_dir", {"path": "."})), runs("ls"), runs("ls -a")),
    )


def test_rewriting_the_plan_again_and_again_is_stuck(workspace: Path) -> None:
    def plan(number: int) -> Line:
        steps = [
            {"text": f"Look at part {number}.", "status": "pending"},
            {"text": f"Write part {number}.", "status": "in_progress"},
        ]
        return asks(("update_plan", {"steps": steps}))

    stuck(workspace, [plan(number) for number in range(MOST_TURNS)])
    statuses = [{"text": "Look.", "status": status} for status in ("pending", "in_progress")]
    stuck(workspace, rounds(*[asks(("update_plan", {"steps": [step]})) for step in statuses]))


def test_the_same_words_without_a_call_end_the_run(workspace: Path) -> None:
    run = lived(workspace, [{"text": "I will now do it.", "repeat": True}])
    assert (run.status, run.turns) == ("done", 1)


@pytest.mark.parametrize(
    "search",
    [
        lambda word: asks(("grep", {"pattern": word})),
        lambda word: runs(f"grep -rn {word} ."),
        pytest.param(
            lambda word: runs(f"find . -name '*{word}*' 2>/dev/null | head -5"), marks=pytest.mark.long
        ),
        lambda word: asks(("glob", {"pattern": f"**/*{word}*"})),
    ],
    ids=["grep", "shell", "find", "glob"],
)
def test_searching_with_synonyms_is_stuck(workspace: Path, search: Callable[[str], Line]) -> None:
    stuck(workspace, [search(f"synonym{number}") for number in range(MOST_TURNS)])


def test_searching_with_synonyms_that_find_the_same_is_stuck(workspace: Path) -> None:
    words = ["this is a", "is a", "s a$", "is [a]"]
    stuck(workspace, rounds(*[asks(("grep", {"pattern": word})) for word in words]))


def test_installing_what_is_already_there_is_stuck(workspace: Path) -> None:
    told = 'echo "Requirement already satisfied: $1 (checked in 0.$RANDOM s, process $$, $(date +%T))"\n'
    script(workspace, "install.sh", told)
    stuck(workspace, rounds(runs("bash install.sh left-pad"), runs("bash ./install.sh right-pad")))


def test_sleeping_briefly_and_looking_is_stuck(workspace: Path) -> None:
    stuck(workspace, [runs(f"sleep 0.00{number % 7}; cat a.txt; date") for number in range(MOST_TURNS)])


# --- eight honest workloads ---------------------------------------------------------------------


@pytest.mark.long
def test_renames_one_by_one_are_work(workspace: Path) -> None:
    for number in range(50):
        (workspace / f"old{number}").write_text("the same")
    honest(lived(workspace, [runs(f"mv old{number} new{number}") for number in range(50)]), 50)


def test_renames_are_work(workspace: Path) -> None:
    """The same command with the same output, but the workspace changes."""
    for number in range(50):
        (workspace / f"new{number}").write_text("the same")
    script(workspace, "next.sh", "set -- new*; mv $1 done_$1; echo renamed one file")
    honest(lived(workspace, [runs("sh next.sh")] * 40), 40)


def test_one_text_into_sixty_files_is_work(workspace: Path) -> None:
    honest(lived(workspace, [writes(f"f{number}.txt", "the text\n") for number in range(58)]), 58)


def test_the_same_edit_that_moves_on_is_work(workspace: Path) -> None:
    (workspace / "f.txt").write_text("x")
    grows = asks(("edit_file", {"path": "f.txt", "old": "x", "new": "ax"}))
    honest(lived(workspace, [grows] * 40), 40)


def test_steps_of_a_plan_that_are_done_one_by_one_are_work(workspace: Path) -> None:
    steps = [{"text": f"Part {number}.", "status": "pending"} for number in range(40)]
    lines: list[Line] = []
    for number in range(40):
        steps = [{**step, "status": "done"} if at <= number else step for at, step in enumerate(steps)]
        lines.append(asks(("update_plan", {"steps": steps})))
    honest(lived(workspace, lines), 40)


@pytest.mark.parametrize(
    "page",
    [
        lambda number: reads("long.txt", offset=1 + 100 * number, limit=100),
        pytest.param(
            lambda number: runs(f"sed -n {1 + 100 * number},{100 + 100 * number}p long.txt"),
            marks=pytest.mark.long,
        ),
    ],
    ids=["tool", "shell"],
)
def test_paging_is_work(workspace: Path, page: Callable[[int], Line]) -> None:
    (workspace / "long.txt").write_text("".join(f"line {number}\n" for number in range(5_000)))
    honest(lived(workspace, [page(number) for number in range(50)]), 50)


def test_polling_a_job_that_moves_on_is_work(workspace: Path) -> None:
    script(
        workspace.parent,
        "poll.sh",
        "n=$(cat ../n 2>/dev/null || echo 0); n=$((n+1)); echo $n > ../n; echo $n of 60",
    )
    honest(lived(workspace, [runs("sh ../poll.sh")] * 50), 50)


@pytest.mark.parametrize(
    ("is_one_turn", "is_same"),
    [
        (False, True),
        (True, False),
        pytest.param(False, False, marks=pytest.mark.long),
        pytest.param(True, True, marks=pytest.mark.long),
    ],
)
def test_fix_and_test_is_work(workspace: Path, is_one_turn: bool, is_same: bool) -> None:
    failing = "3" if is_same else "$((60 - n))"
    script(
        workspace,
        "test.sh",
        f"n=$(cut -d= -f2 fix.py); echo {failing} failed, 2 passed in 0.0$RANDOM s; exit 1",
    )
    lines: list[Line] = []
    for number in range(25):
        edit = ("write_file", {"path": "fix.py", "content": f"value={number}"})
        test = ("shell", {"command": "sh test.sh"})
        lines += [asks(edit, test)] if is_one_turn else [asks(edit), asks(test)]
    run = lived(workspace, lines)
    honest(run, len(lines))
    assert not any("refused" in text for text in run.results)


def test_tests_whose_counts_change_are_progress_also_without_a_change_of_the_workspace(
    workspace: Path,
) -> None:
    script(
        workspace.parent,
        "flaky.sh",
        "n=$(cat ../m 2>/dev/null || echo 9); echo $((n+1)) > ../m; echo $n passed; exit 1",
    )
    honest(lived(workspace, [runs("sh ../flaky.sh"), reads("a.txt")] * 25), 50)


SWEEPS: dict[str, Callable[[int], Line]] = {
    "a check": lambda number: runs(f"sh check.sh f{number}"),
    "a silent check": lambda number: runs(f"test -s f{number}"),
    "a search tool": lambda number: asks(("grep", {"pattern": "TODO", "path": f"f{number}"})),
    "a search by shell": lambda number: runs(f"grep -n TODO f{number}"),
    "a look": lambda number: reads(f"f{number}"),
}


ALIKE = {"a silent check", "a search tool", "a search by shell"}
"""Sweeps that the others stand for in the everyday suite."""


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=name, marks=pytest.mark.long if name in ALIKE else ())
        for name, line in SWEEPS.items()
    ],
)
def test_a_sweep_that_finds_everything_in_order_is_work(workspace: Path, line: Callable[[int], Line]) -> None:
    script(workspace, "check.sh", "test -s $1 && echo in order")
    for number in range(50):
        (workspace / f"f{number}").write_text("fine\n")
    honest(lived(workspace, [line(number) for number in range(50)]), 50)


def test_waiting_for_a_slow_job_is_work(workspace: Path) -> None:
    @tool(effect="exec")
    async def wait(seconds: float) -> str:
        """Wait for the job."""
        await asyncio.sleep(seconds)
        return "still running"

    async def main(clock: JumpingClock) -> Lived:
        wide = {"tools": [wait], "clock": clock}
        return await live(workspace, [asks(("wait", {"seconds": 30}))] * 50, **wide)

    honest(run_jumping(main), 50)


def test_waiting_a_little_is_no_waiting(workspace: Path) -> None:
    @tool(effect="exec")
    async def wait(seconds: float) -> str:
        """Wait for the job."""
        await asyncio.sleep(seconds)
        return "still running"

    async def main(clock: JumpingClock) -> Lived:
        lines = rounds(*[asks(("wait", {"seconds": seconds})) for seconds in (1, 2, 3)])
        return await live(workspace, lines, tools=[wait], clock=clock)

    run = run_jumping(main)
    assert (run.status, run.reason) == ("stuck", "stall")


# --- calls that failed before -------------------------------------------------------------------


@pytest.mark.requirement("L2-09")
def test_what_failed_three_times_is_refused_until_the_workspace_changes(workspace: Path) -> None:
    script(workspace, "build.sh", "echo error: no such header at $(date +%T), pid $$; test -f header.h")
    build, look = runs("sh build.sh"), reads("a.txt")
    lines = [build, look, runs("sh  build.sh # again"), build, build, writes("header.h", "x"), build]
    run = lived(workspace, lines)
    assert run.status == "done"
    refused = [event for event in run.events if isinstance(event, e.ToolCallRefused)]
    assert [(event.call_id, event.failure.code) for event in refused] == [("t5.c1", "failed_before")]
    assert "failed 3 times in a row" in refused[0].failure.message
    assert "t4.c1" in refused[0].failure.message
    last = [event for event in run.events if isinstance(event, e.ToolCallFinished)][-1]
    assert last.result.status == "ok"


@pytest.mark.requirement("B3", "B8")
def test_a_file_that_is_read_again_is_answered_from_what_is_known_with_a_note(workspace: Path) -> None:
    for path in workspace.iterdir():
        path.touch()
    time.sleep(0.06)  # longer than the tick of the kernel's clock
    change = runs("sleep 0.06; printf 'that is' | dd of=a.txt conv=notrunc status=none; sleep 0.06")
    lines = [reads("a.txt"), reads("./a.txt", offset=1), change, reads("a.txt"), reads("a.txt")]
    first, again, _, changed, known = lived(workspace, lines).results
    assert again == first + KNOWN
    assert changed.startswith("that is a\n")
    assert known == changed + KNOWN


@pytest.mark.requirement("B3", "B8")
@pytest.mark.parametrize(
    ("name", "arguments", "other_spelling"),
    [
        ("list_dir", {"path": "."}, {}),
        ("glob", {"pattern": "*.txt"}, {"pattern": "*.txt", "path": "./."}),
        ("grep", {"pattern": "that is", "path": "."}, {"path": "./", "pattern": "that is"}),
    ],
)
def test_a_search_with_the_same_answer_says_that_nothing_has_changed(
    workspace: Path, name: str, arguments: dict[str, str], other_spelling: dict[str, str]
) -> None:
    first, again = asks((name, arguments)), asks((name, other_spelling))
    lines = [first, again, writes("new.txt", "that is new"), first, again]
    found, known, _, changed, last = lived(workspace, lines).results
    assert known == found + KNOWN
    assert "new.txt" in changed
    assert KNOWN not in changed
    assert last == changed + KNOWN
