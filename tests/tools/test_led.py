"""What protected files lead to is protected as well: targets of links, and what git's configuration names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.protocol.fence import Launch
from holdfast.protocol.settings import Walls
from holdfast.testing.clock import never_over
from holdfast.tools import fencing, led
from holdfast.tools.fencing import Fences
from holdfast.tools.own import OwnPlaces

WALLS = Walls("bubblewrap")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    touch(folder / ".git" / "HEAD", folder / ".git" / "config", folder / ".git" / "hooks" / "x.sample")
    return folder


@pytest.fixture
def fences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fences:
    monkeypatch.setattr(fencing, "git_identity", str)
    return Fences(OwnPlaces((str(tmp_path / "home" / ".holdfast"),)), str(tmp_path / "home"), "bubblewrap")


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def protected(fences: Fences, workspace: Path) -> list[str]:
    """What is protected beside what every repository has."""
    usual = {".git/config", ".git/hooks"}
    found = {os.path.relpath(path, workspace) for path in fences.fence(str(workspace), WALLS).protected}
    return sorted(found - usual)


async def changed(fences: Fences, workspace: Path, command: Callable[[], object]) -> list[str]:
    """What is put right after something changed, as under `bubblewrap`."""
    launch = await fences.around(
        Launch(("true",), str(workspace), "s:1", {}, 1.0, 1.0, never_over), str(workspace), WALLS
    )
    launch.check()
    command()
    assert launch.put_right is not None
    return [os.path.relpath(path, workspace) for path in launch.put_right().changed]


@pytest.mark.requirement("L2")
def test_what_links_in_protected_folders_lead_to_is_protected(fences: Fences, workspace: Path) -> None:
    touch(
        workspace / "scripts" / "check", workspace / "conf" / "tasks.json", workspace / "agents" / "a" / "x"
    )
    touch(workspace / "deep" / "y", workspace / ".vscode" / "z")
    (workspace / ".git" / "hooks" / "pre-commit").symlink_to("../../scripts/check")
    (workspace / ".vscode" / "tasks.json").symlink_to("../conf/tasks.json")
    (workspace / ".claude" / "skills").mkdir(parents=True)
    (workspace / ".claude" / "skills" / "a").symlink_to(workspace / "agents" / "a")
    (workspace / "agents" / "a" / "more").symlink_to("../../deep/y")
    assert protected(fences, workspace) == [
        ".claude", ".vscode", "agents/a", "conf/tasks.json", "deep/y", "scripts/check"
    ]  # fmt: skip


@pytest.mark.requirement("L2")
def test_links_that_lead_out_or_to_what_holds_them_or_to_a_repository_protect_nothing(
    fences: Fences, workspace: Path, tmp_path: Path
) -> None:
    touch(tmp_path / "outside", workspace / "sub" / ".vscode" / "x", workspace / "bare" / "HEAD")
    for number, target in enumerate(
        (tmp_path / "outside", "..", "../..", "../../.git", "../../.git/index", "../../bare", "loop", "/" * 3)
    ):
        (workspace / "sub" / ".vscode" / str(number)).symlink_to(target)
    (workspace / "sub" / ".vscode" / "loop").symlink_to("loop")
    assert protected(fences, workspace) == ["sub/.vscode"]


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ("[core]\n\thooksPath = .husky", [".husky"]),
        ("[core]\n\thooksPath = .husky/_", [".husky"]),
        ("[include]\n\tpath = ../shared.conf", ["more.conf", "shared.conf", "tools/clean.py"]),
        ('[includeIf "gitdir:x"]\n\tpath = ../shared.conf', ["more.conf", "shared.conf", "tools/clean.py"]),
        ("[core]\n\tfsmonitor = tools/monitor", ["tools/monitor"]),
        ('[filter "x"]\n\tclean = python3 clean.py --quiet', ["clean.py"]),
        ('[diff "x"]\n\ttextconv = "sh -c \'tools/clean.py\'"', ["tools/clean.py"]),
        ("[core]\n\tsshCommand = tools", []),
        ("[blame]\n\tignoreRevsFile = clean.py", []),
        ("[alias]\n\tx = !tools/clean.py", []),
        ("[core]\n\thooksPath = .", []),
        ("[core]\n\thooksPath = .git", []),
        ("[core]\n\thooksPath = .git/own", [".git/own"]),
        ("[core]\n\tbroken", []),
    ],
)
def test_what_the_configuration_of_git_names_is_protected(
    fences: Fences, workspace: Path, config: str, kept: list[str]
) -> None:
    for name in (
        ".husky/_/x",
        "shared.conf",
        "more.conf",
        "tools/monitor",
        "tools/clean.py",
        "clean.py",
        ".git/own/x",
    ):
        touch(workspace / name)
    (workspace / "shared.conf").write_text("[include]\n\tpath = more.conf")
    (workspace / "more.conf").write_text("[core]\n\tfsmonitor = tools/clean.py")
    (workspace / ".git" / "config").write_text(config)
    assert protected(fences, workspace) == kept


@pytest.mark.requirement("L2")
def test_the_configuration_of_the_user_counts_in_each_working_tree(
    fences: Fences, workspace: Path, tmp_path: Path
) -> None:
    touch(tmp_path / "home" / ".gitconfig", workspace / "hooks" / "x", workspace / "tree" / "hooks" / "x")
    (tmp_path / "home" / ".gitconfig").write_text("[core]\n\thooksPath = hooks")
    (workspace / "tree" / ".git").write_text("gitdir: ../.git/worktrees/tree")
    assert protected(fences, workspace) == ["hooks", "tree/.git", "tree/hooks"]


@pytest.mark.requirement("L2")
def test_a_configuration_is_read_again_when_it_changed_and_only_then(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(workspace / "a" / "x", workspace / "b" / "x")
    monkeypatch.setattr(led, "is_fresh", lambda *_: False)
    read: list[str] = []
    whole = led.parsed
    monkeypatch.setattr(led, "parsed", lambda text: read.append(text) or whole(text))
    for name in ("a", "b"):
        (workspace / ".git" / "config").write_text(f"[core]\n\thooksPath = {name}")
        read.clear()
        assert protected(fences, workspace) == protected(fences, workspace) == [name]
        assert len([text for text in read if "hooksPath" in text]) == 1


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("kind", ["a link", "a folder of hooks", "an include", "a program"])
async def test_what_comes_to_life_where_something_protected_leads_is_put_aside(
    fences: Fences, workspace: Path, kind: str
) -> None:
    place = workspace / "conf" / "new"
    if kind == "a link":
        (workspace / ".envrc").symlink_to("conf/new")
    config = {
        "a folder of hooks": "[core]\n\thooksPath = conf/new",
        "an include": "[include]\n\tpath = ../conf/new",
        "a program": "[core]\n\tfsmonitor = conf/new",
    }
    (workspace / ".git" / "config").write_text(config.get(kind, ""))
    assert await changed(fences, workspace, lambda: touch(place)) == ["conf/new"]
    assert not place.exists()
    assert (workspace / "conf" / "new.put-aside").exists()


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("name", ["info", "hooks", "worktrees", "remotes", "rebase-merge"])
async def test_a_new_folder_of_hooks_is_put_aside_whatever_its_name(
    fences: Fences, workspace: Path, name: str
) -> None:
    """git makes folders with such names in its own, and they may stay there."""
    (workspace / ".git" / "config").write_text(f"[core]\n\thooksPath = {name}")
    assert await changed(fences, workspace, lambda: touch(workspace / name / "pre-commit.sample")) == [name]
    assert not (workspace / name).exists()
    touch(workspace / name / "pre-commit")
    assert protected(fences, workspace) == [name]


@pytest.mark.requirement("L2")
async def test_a_link_on_the_way_is_put_back_and_a_new_one_put_aside(fences: Fences, workspace: Path) -> None:
    touch(workspace / "conf" / "envrc", workspace / "evil" / "envrc")
    (workspace / "way").symlink_to("conf")
    (workspace / ".envrc").symlink_to("way/envrc")
    (workspace / "sub").mkdir()
    (workspace / "sub" / ".envrc").symlink_to("gone/envrc")

    def command() -> None:
        (workspace / "way").unlink()
        (workspace / "way").symlink_to("evil")
        (workspace / "sub" / "gone").symlink_to("../evil")

    assert await changed(fences, workspace, command) == ["sub/gone", "way"]
    assert (workspace / "way").readlink() == Path("conf")
    assert not (workspace / "sub" / ".envrc").exists()


@pytest.mark.requirement("L2")
async def test_a_configuration_that_changes_meanwhile_changes_nothing(
    fences: Fences, workspace: Path
) -> None:
    config = workspace / ".git" / "config"
    config.write_text("[core]\n\thooksPath = hooks")

    def command() -> None:
        config.write_text("")
        touch(workspace / "hooks" / "pre-commit")

    assert await changed(fences, workspace, command) == ["hooks"]


@pytest.mark.requirement("L2")
def test_what_is_followed_has_a_bound(
    fences: Fences, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(led, "_MOST_LED", 3)
    (workspace / ".vscode").mkdir()
    for number in range(5):
        touch(workspace / "conf" / str(number))
        (workspace / ".vscode" / str(number)).symlink_to(f"../conf/{number}")
    assert len(protected(fences, workspace)) == 1 + 3
