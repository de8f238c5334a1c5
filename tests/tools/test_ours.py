"""What a file tool of the session wrote, a command may overwrite or move away unasked. Everything else asks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.policy.rules import judge, strictest
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import MARK_DIGITS, Decision, ToolSpec, Written
from holdfast.tools.facts import facts_of
from holdfast.tools.ours import MAX_BYTES, MAX_FILES, ours
from holdfast.tools.own import OwnPlaces
from tests.seeds import many

SHELL = ToolSpec("shell", "", {}, effect="exec", source="builtin", kinds={"command": "command"})
TEXT = "ours\n"
OURS = ("a.py", "src/b.py", "c d.txt")
Judge = Callable[[str], Decision]


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    workspace = tmp_path / "ws"
    (workspace / "src").mkdir(parents=True)
    (workspace / ".git/hooks").mkdir(parents=True)
    for name in OURS:
        (workspace / name).write_text(TEXT)
    for name in ("theirs.py", "src/theirs.py"):
        (workspace / name).write_text("theirs\n")
    return workspace


def written(*paths: str, text: str = TEXT) -> tuple[Written, ...]:
    return tuple(Written(path, hashlib.sha256(text.encode()).hexdigest()[:MARK_DIGITS]) for path in paths)


def verdict(ws: Path, text: str, files: tuple[Written, ...] = written(*OURS)) -> str:
    made = settings_with(ModelFacts("x", "x"), str(ws), autonomy="supervised")
    is_ours = ours(str(ws), files, hashlib.sha256)
    return strictest(judge(facts_of(SHELL, {"command": text}, made, OwnPlaces(), is_ours))).verdict


UNASKED = [
    "echo x > a.py", "cp theirs.py a.py", "mv a.py e.py", "mv a.py src/b.py", "mv a.py src",
    "mv -t src a.py 'c d.txt'", "mv 'c d.txt' src/", "cd src && mv b.py c.py", "sort -o a.py theirs.py",
    "echo x | tee a.py", "mv ./src/../a.py e.py", "rm a.py", "mv a.py e.py && ls", "mv -n a.py e.py",
]  # fmt: skip
ASKED = [
    "echo x > theirs.py", "mv theirs.py e.py", "cp a.py theirs.py", "mv a.py theirs.py", "mv a.py theirs.py src",
    "mv src e", "mv *.py src", "mv a.* e.py", "rm -r src", "rm *.py", "cp -r src e && mv e src",
    "ln -s theirs.py e.py", "ln a.py e.py", "mv a.py e.py && mv e.py f.py", "chmod +x a.py",
    "truncate -s 0 a.py", "mv $x a.py", "mv a.py $x", "mv -b a.py e.py", "mv a.py src/theirs.py",
    "cd src && mv b.py theirs.py", "ln -sf theirs.py a.py && echo x > a.py", "mv src a.py",
]  # fmt: skip


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize("text", UNASKED)
def test_a_command_may_overwrite_and_move_away_what_file_tools_wrote(ws: Path, text: str) -> None:
    assert verdict(ws, text) == "allow"
    assert text in ("rm a.py",) or verdict(ws, text, ()) == "ask"


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize("text", ASKED)
def test_everything_else_that_overwrites_or_moves_away_asks(ws: Path, text: str) -> None:
    assert verdict(ws, text) == "ask"


def changed(ws: Path) -> None:
    (ws / "a.py").write_text("else\n")


def linked(ws: Path) -> None:
    (ws / "a.py").rename(ws / "other")
    (ws / "a.py").symlink_to("other")


def named_twice(ws: Path) -> None:
    (ws / "other").hardlink_to(ws / "a.py")


def behind_a_link(ws: Path) -> None:
    (ws / "src").rename(ws / "elsewhere")
    (ws / "src").symlink_to("elsewhere")


@pytest.mark.requirement("C12", "L2")
@pytest.mark.parametrize(
    ("change", "text"),
    [(changed, "echo x > a.py"), (changed, "mv a.py e.py"), (linked, "mv a.py e.py"), (linked, "echo x > a.py"),
     (named_twice, "echo x > a.py"), (behind_a_link, "echo x > src/b.py")],
)  # fmt: skip
def test_what_is_not_as_the_file_tools_left_it_is_no_longer_theirs(
    ws: Path, change: Callable[[Path], None], text: str
) -> None:
    assert verdict(ws, text) == "allow"
    change(ws)
    assert verdict(ws, text) == "ask"


@pytest.mark.requirement("C12", "L2")
def test_a_file_that_steers_other_programs_is_never_ours(ws: Path) -> None:
    (ws / ".git/hooks/pre-commit").write_text(TEXT)
    assert verdict(ws, "mv a.py .git/hooks/pre-commit", written(*OURS, ".git/hooks/pre-commit")) == "deny"
    assert verdict(ws, "mv a.py .git/hooks") == "deny"
    assert verdict(ws, "mv a.py .env") == "deny"


@pytest.mark.requirement("C12", "L2")
def test_many_and_large_files_ask(ws: Path) -> None:
    names = [f"n{number}" for number in range(MAX_FILES + 1)]
    for name in names:
        (ws / name).write_text(TEXT)
    files = written(*names)
    assert verdict(ws, "; ".join(f"echo x > {name}" for name in names[1:]), files) == "allow"
    assert verdict(ws, "; ".join(f"echo x > {name}" for name in names), files) == "ask"
    (ws / "large").write_text("x" * (MAX_BYTES + 1))
    assert verdict(ws, "echo x > large", written("large", text="x" * (MAX_BYTES + 1))) == "ask"


@pytest.mark.requirement("C12", "L2")
def test_a_pipe_under_the_name_of_a_file_of_ours_makes_nobody_wait(ws: Path) -> None:
    (ws / "a.py").unlink()
    os.mkfifo(ws / "a.py")
    assert verdict(ws, "mv a.py e.py") == "ask"


PARTS = [*UNASKED, *ASKED, "ls", "cd src", "cd ..", "echo x > new", "mv e.py a.py"]


@pytest.mark.requirement("C12", "L2")
@settings(max_examples=many(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=3), st.sampled_from(PARTS))
def test_a_verdict_never_becomes_looser_by_what_follows(ws: Path, parts: list[str], more: str) -> None:
    order = ("allow", "ask", "deny")
    for joint in ("; ", " && "):
        text = joint.join(parts)
        assert order.index(verdict(ws, f"{text}{joint}{more}")) >= order.index(verdict(ws, text))


@pytest.mark.requirement("C12", "L2")
@settings(max_examples=many(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("; ".join), st.sets(st.sampled_from(OURS))
)
def test_fewer_files_of_ours_never_loosen_a_verdict(ws: Path, text: str, fewer: set[str]) -> None:
    order = ("allow", "ask", "deny")
    assert order.index(verdict(ws, text, written(*fewer))) >= order.index(verdict(ws, text))
