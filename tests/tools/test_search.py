"""list_dir, glob, grep and shell over a small tree."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.protocol.tools import Allowed
from holdfast.tools import dispatcher, search
from holdfast.tools.search import matches
from holdfast.tools.shell import NO_BASH
from tests.tools.conftest import Bench


@pytest.fixture
def tree(bench: Bench) -> Bench:
    for path, text in {
        "a.py": "import os\nprint('hello')\n",
        "src/b.py": "hello = 1\n",
        "src/deep/c.txt": "say hello\r\n",
        ".git/config": "hello",
        "data.bin": "hello\0",
    }.items():
        (bench.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.workspace / path).write_bytes(text.encode())
    (bench.workspace / "link").symlink_to("src")
    return bench


async def test_a_folder_is_listed_with_kinds_and_sizes(tree: Bench) -> None:
    assert (await tree.call("list_dir")).text == ".git/\nsrc/\na.py  25\ndata.bin  6\nlink@\n"
    assert (await tree.call("list_dir", path="src/deep")).text == "c.txt  11\n"
    (tree.workspace / "none").mkdir()
    assert (await tree.call("list_dir", path="none")).text == "[the folder is empty]\n"
    assert (await tree.call("list_dir", path="a.py")).status == "error"
    assert (await tree.call("list_dir", path="gone")).status == "error"


@pytest.mark.requirement("L2")
async def test_a_name_with_line_breaks_is_one_entry_on_one_line(bench: Bench) -> None:
    (bench.workspace / "a\nsrc/\x1b[2J".replace("/", "")).write_text("hello\n")
    assert (await bench.call("list_dir")).text == "a\\nsrc\\x1b[2J  6\n"
    assert (await bench.call("glob", pattern="*")).text == "a\\nsrc\\x1b[2J\n"
    assert (await bench.call("grep", pattern="hello")).text == "a\\nsrc\\x1b[2J:1: hello\n"


async def test_glob_finds_files_by_name_and_passes_over_git_and_links(tree: Bench) -> None:
    assert (await tree.call("glob", pattern="**/*.py")).text == "a.py\nsrc/b.py\n"
    assert (await tree.call("glob", pattern="*.py")).text == "a.py\n"
    assert (await tree.call("glob", pattern="**/c.*", path="src")).text == "src/deep/c.txt\n"
    assert (await tree.call("glob", pattern="**/config")).text == "[no files match]\n"
    assert (await tree.call("glob", pattern="../*")).status == "error"


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b/c.py", "**/*.py", True),
        ("c.py", "**/*.py", True),
        ("a/b/c.py", "a/**/c.py", True),
        ("a/c.py", "a/**/c.py", True),
        ("a/b/c.py", "a/*.py", False),
        ("a/b", "a/**", True),
        ("a/b/c", "**", True),
        ("a", "a/b", False),
        ("ab.txt", "a[bc].t?t", True),
        ("a/b/c/d", "a/**/b/**/d", True),
    ],
)
def test_a_glob_matches_names_and_folders(path: str, pattern: str, expected: bool) -> None:
    assert matches(path, pattern) is expected


def test_a_glob_made_to_backtrack_comes_to_an_end() -> None:
    """One that tries every way would take longer than anyone lives."""
    assert not matches("/".join(["a"] * 60), "/".join(["**", "a"] * 30 + ["b"]))
    assert not matches("a" * 250, "*a" * 60 + "b")


async def test_grep_finds_lines_with_their_places(tree: Bench) -> None:
    assert (await tree.call("grep", pattern="hel+o")).text == (
        "a.py:2: print('hello')\nsrc/b.py:1: hello = 1\nsrc/deep/c.txt:1: say hello\n"
    )
    assert (
        await tree.call("grep", pattern="hello", glob="*.py", path="src")
    ).text == "src/b.py:1: hello = 1\n"
    assert (await tree.call("grep", pattern="hello", path="src/b.py")).text == "src/b.py:1: hello = 1\n"
    assert (await tree.call("grep", pattern="nowhere")).text == "[no lines match]\n"
    broken = await tree.call("grep", pattern="(")
    assert broken.status == "error"
    assert "not a regular expression" in broken.text


@pytest.mark.requirement("L1", "L7")
async def test_a_pattern_that_never_ends_is_ended(tree: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "GREP_S", 0.8)
    (tree.workspace / "trap").write_text("a" * 60 + "b\n")
    ended = await tree.call("grep", pattern="^(a+)+$", path="trap")
    assert ended.status == "timeout"
    assert "simpler pattern" in ended.text


async def test_answers_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_ENTRIES", 3)
    for n in range(5):
        (bench.workspace / f"{n}.txt").write_text("x" * 1_000 + "\n")
    assert (await bench.call("glob", pattern="*")).text.endswith("2.txt\n[2 more: narrow the search]\n")
    assert (await bench.call("list_dir")).text.count("\n") == 4
    found = (await bench.call("grep", pattern="x")).text
    assert found.endswith("[more lines match: narrow the search]\n")
    assert len(found) < 3 * 500
    with (bench.workspace / "big.txt").open("wb") as file:
        file.truncate(64 << 20)
    assert (await bench.call("grep", pattern="x", path="big.txt")).text == (
        "[big.txt is larger than 32 MiB: not searched]\n"
    )
    monkeypatch.setattr(search, "MAX_LOOKED_AT", 2)
    (bench.workspace / "more").mkdir()
    assert "were examined" in (await bench.call("glob", pattern="none")).text


async def test_names_that_are_no_text_are_shown_all_the_same(bench: Bench) -> None:
    with open(os.fsencode(bench.workspace) + b"/caf\xe9", "w") as file:  # noqa: PTH123 - a name of bytes
        file.write("hello\n")
    assert (await bench.call("list_dir")).text == "caf\ufffd  6\n"
    assert (await bench.call("glob", pattern="*")).text == "caf\ufffd\n"
    assert (await bench.call("grep", pattern="hello")).text == "caf\ufffd:1: hello\n"


@pytest.mark.requirement("A6", "C3", "L1")
async def test_the_shell_says_how_a_command_ended(
    bench: Bench, skip_ahead: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ran(command: str, **rest: float) -> tuple[str, str]:
        result = await bench.call("shell", command=command, **rest)
        return result.status, result.text

    assert await ran("pwd") == ("ok", f"{bench.workspace}\n")
    assert await ran("true") == ("ok", "[no output]")
    assert await ran("echo no; exit 3") == ("error", "no\n[exit code 3]")
    assert await ran("kill -9 $$") == ("error", "[killed by signal 9]")
    monkeypatch.setattr(dispatcher, "GRACE_S", 1_000.0)
    late = asyncio.create_task(ran("printf part; sleep 300", timeout_s=100))
    while "part" not in bench.heard:  # noqa: ASYNC110 - the tools' contract offers no event for it
        await asyncio.sleep(0.01)
    skip_ahead(100)
    status, text = await late
    assert status == "timeout"
    assert text.startswith("part\n[killed after 100 s, with all its processes. ")
    assert "timeout_s" in text
    assert "background=true" in text


async def test_an_admitted_command_names_its_folder_program_and_timeout(bench: Bench) -> None:
    admission = await bench.admit("shell", command="env ls", timeout_s=7)
    assert isinstance(admission, Allowed)
    assert (admission.effect, admission.on_interrupt) == ("exec", "unknown")
    assert (admission.cwd, admission.timeout_s) == (str(bench.workspace), 7.0)
    assert admission.binary == str(Path(shutil.which("env") or "").resolve())
    script = bench.workspace / "run.sh"
    script.touch(mode=0o755)
    assert (await bench.admit("shell", command="./run.sh --fast")).binary == str(script)
    assert (await bench.admit("shell", command="X=1 'oops")).binary == (
        await bench.admit("shell", command=":")
    ).binary


@pytest.mark.requirement("A7")
@pytest.mark.parametrize("background", [False, True])
async def test_no_other_shell_runs_what_the_gates_read_as_bash_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    (bench.workspace / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(bench.workspace))
    result = await bench.call("shell", command="echo $((1)) > made", background=background)
    assert (result.status, result.text) == ("error", NO_BASH)
    assert not (bench.workspace / "made").exists()


async def test_a_long_line_is_not_cut_inside_a_word(bench: Bench) -> None:
    key = "sk-ant-" + "api03-" + "Zk3mQ8" * 14
    (bench.workspace / "a.json").write_text("word " * 78 + key + " hello\n")
    (bench.workspace / "b.json").write_text("word " * 80 + "hello\n")
    found = await bench.call("grep", pattern="hello")
    assert found.text == f"a.json:1: {'word ' * 78} ...\nb.json:1: {'word ' * 80} ...\n"
