"""File tools cannot leave the workspace: by name, by link, by race, or by anything that is not a file."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.protocol.tools import Refused
from holdfast.tools import workspace
from holdfast.tools.workspace import PathRefused, Root, open_to_read, place
from tests.tools.conftest import Bench

OUTSIDE = [
    "../../../etc/hosts",
    "/etc/../etc/hosts",
    "/etc/hosts",
    "/tmp/x",
    "..",
    "a/../../x",
    "../ws2/a.txt",
]


@pytest.mark.requirement("L2", "L12", "C13")
@pytest.mark.parametrize(
    "path", [*OUTSIDE, "../../../etc/passwd", "/etc/../etc/passwd", "/proc/self/root/etc/hosts"]
)
async def test_path_traversal_blocked(bench: Bench, path: str) -> None:
    for name, rest in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("list_dir", {}),
        ("grep", {"pattern": "x"}),
    ):
        admission = await bench.admit(name, path=path, **rest)
        assert isinstance(admission, Refused)
        assert admission.failure.code == "policy_denied"
        # Also when nobody asked the gates: the walk itself has no way out.
        assert (await bench.run(name, path=path, **rest)).status == "error"


@pytest.mark.requirement("L2", "L12")
async def test_symlink_attack_blocked(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("kept")
    (bench.workspace / "folder").symlink_to(outside)
    (bench.workspace / "file").symlink_to(outside / "a.txt")
    (bench.workspace / "up").symlink_to("../outside")
    (bench.workspace / "two").symlink_to("folder")
    for path in ("folder/a.txt", "file", "up/a.txt", "two/a.txt"):
        assert "leads out of the workspace" in (await bench.run("read_file", path=path)).text
        assert (await bench.run("write_file", path=path, content="x")).status == "error"
        assert (await bench.run("edit_file", path=path, old="kept", new="x")).status == "error"
        assert isinstance(await bench.admit("write_file", path=path, content="x"), Refused)
    assert (await bench.run("write_file", path="folder/new/b.txt", content="x")).status == "error"
    assert sorted(path.name for path in outside.iterdir()) == ["a.txt"]
    assert (outside / "a.txt").read_text() == "kept"


@pytest.mark.requirement("L2", "L12", "C13")
async def test_write_outside_sandbox_blocked(bench: Bench, tmp_path: Path) -> None:
    for path in (str(tmp_path / "x.txt"), "../x.txt", "sub/../../x.txt", "/tmp/holdfast-must-not-exist/x"):
        assert isinstance(await bench.admit("write_file", path=path, content="x"), Refused)
        assert (await bench.run("write_file", path=path, content="x")).status == "error"
    assert [entry.name for entry in tmp_path.iterdir()] == ["ws"]
    assert not Path("/tmp/holdfast-must-not-exist").exists()


@pytest.mark.requirement("L2")
def test_a_link_made_between_the_walk_and_the_opening_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with place(Root(str(tmp_path)), "a") as found:
        (tmp_path / "a").unlink()
        (tmp_path / "a").symlink_to("/etc/hosts")
        with pytest.raises(OSError, match="symbolic links"):
            os.open(found.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=found.folder_fd)
    with pytest.raises(PathRefused, match="leads out"), open_to_read(Root(str(tmp_path)), "a"):
        pass


@pytest.mark.requirement("L2", "C13")
async def test_links_and_dots_that_stay_inside_work(bench: Bench) -> None:
    (bench.workspace / "real").mkdir()
    (bench.workspace / "near").symlink_to("real")
    (bench.workspace / "far").symlink_to(bench.workspace / "real")
    (bench.workspace / "back").symlink_to("real/../real")
    for path in (
        "near/a.txt",
        "far/a.txt",
        "back/a.txt",
        "real/../near/a.txt",
        f"{bench.workspace}/../ws/near/a.txt",
    ):
        assert (await bench.call("write_file", path=path, content=path)).status == "ok"
        assert (bench.workspace / "real" / "a.txt").read_text() == path
        assert (await bench.call("read_file", path=path)).text == path
    assert (bench.workspace / "near").is_symlink()


@pytest.mark.requirement("L2")
def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(PathRefused, match="loop"), place(Root(str(tmp_path)), "a"):
        pass


@pytest.mark.requirement("L2")
async def test_a_hard_link_is_not_written_and_a_secret_by_another_name_not_read(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "work").write_text("private key")
    os.link(tmp_path / "home" / ".ssh" / "work", bench.workspace / "innocent.txt")
    (tmp_path / "plain").write_text("plain")
    os.link(tmp_path / "plain", bench.workspace / "plain.txt")
    (bench.workspace / ".env").write_text("private TOKEN")
    os.link(bench.workspace / ".env", bench.workspace / "settings.txt")
    for name in ("conf/.env", "deploy/.ssh/work/key"):
        (bench.workspace / name).parent.mkdir(parents=True)
        (bench.workspace / name).write_text("deep TOKEN")
        os.link(bench.workspace / name, bench.workspace / f"{name.partition('/')[0]}.txt")
    for path in ("innocent.txt", "settings.txt", "conf.txt", "deploy.txt"):
        assert "another name of a secret" in (await bench.run("read_file", path=path)).text
        assert (await bench.run("grep", pattern="private|TOKEN", path=path)).text == "[no lines match]\n"
    assert (await bench.run("grep", pattern="private|plain|TOKEN")).text == "plain.txt:1: plain\n"
    assert (await bench.run("read_file", path="plain.txt")).text == "plain"
    refused = await bench.run("write_file", path="plain.txt", content="x")
    assert refused.status == "error"
    assert "hard links" in refused.text
    assert (tmp_path / "plain").read_text() == "plain"


@pytest.mark.requirement("L2")
async def test_where_nobody_can_tell_secret_files_by_other_names_files_with_several_names_are_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "deep/er/.env"):
        (bench.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.workspace / name).write_text("plain")
    os.link(bench.workspace / "deep/er/.env", bench.workspace / "notes")
    monkeypatch.setattr(workspace, "_MOST_NAMES", 3)
    assert "nobody can tell" in (await bench.run("read_file", path="notes")).text
    assert (await bench.run("read_file", path="a")).text == "plain"
    left_out = "[1 file with several names (hard links) not examined: one may be secret]\n"
    assert (await bench.run("grep", pattern="plain")).text == f"a:1: plain\nb:1: plain\n{left_out}"
    assert (await bench.run("grep", pattern="plain", path="notes")).text == f"[no lines match]\n{left_out}"


@pytest.mark.requirement("L2")
async def test_only_regular_files_are_opened_and_nothing_waits_for_a_pipe(bench: Bench) -> None:
    os.mkfifo(bench.workspace / "pipe")
    (bench.workspace / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(bench.workspace / "socket"))
        for path in ("pipe", "socket", "folder"):
            assert (await bench.run("read_file", path=path)).status == "error"
            assert (await bench.run("write_file", path=path, content="x")).status == "error"
    assert (bench.workspace / "folder").is_dir()


@pytest.mark.requirement("L2", "C12")
async def test_kernel_files_are_refused_even_when_the_workspace_is_the_root(bench: Bench) -> None:
    for path in ("/proc/self/environ", "/proc/self/root/etc/hosts", "/dev/null", "/sys/kernel/mm"):
        with pytest.raises(PathRefused), open_to_read(Root("/"), path):
            pass
    with open_to_read(Root("/"), "/etc/hosts") as (fd, _):
        assert os.read(fd, 1)


@pytest.mark.requirement("C12")
async def test_a_secret_inside_the_workspace_is_neither_read_nor_written_nor_searched(bench: Bench) -> None:
    (bench.workspace / ".env").write_text("TOKEN=abc")
    (bench.workspace / "notes.txt").symlink_to(".env")
    (bench.workspace / ".env.example").write_text("TOKEN=put yours here")
    for path in (".env", "notes.txt", "./sub/../.ENV"):
        assert isinstance(await bench.admit("read_file", path=path), Refused)
        assert "secret" in (await bench.run("read_file", path=path)).text
        assert (await bench.run("write_file", path=path, content="x")).status == "error"
    assert (bench.workspace / ".env").read_text() == "TOKEN=abc"
    found = await bench.call("grep", pattern="TOKEN")
    assert found.text == ".env.example:1: TOKEN=put yours here\n"


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(("path", "word"), [("a\0b", "NUL"), ("x" * 300, "255"), ("y/" * 3000, "4096")])
async def test_a_path_that_cannot_be_is_refused_in_words(bench: Bench, path: str, word: str) -> None:
    admission = await bench.admit("write_file", path=path, content="x")
    assert isinstance(admission, Refused)
    assert word in admission.failure.message
    assert list(bench.workspace.iterdir()) == []


@pytest.mark.requirement("L2", "C13")
def test_no_published_traversal_escapes_and_benign_paths_pass(
    repository: Path, shared: Path, tmp_path: Path
) -> None:
    scored = score(repository, shared, "path", tmp_path)
    assert scored["path/benign"] == [10, 10]
    right, total = scored["path"]
    assert right == total > 15_000


@pytest.mark.requirement("C3")
def test_the_schema_gate_agrees_with_the_published_cases(
    repository: Path, shared: Path, tmp_path: Path
) -> None:
    scored = score(repository, shared, "schema", tmp_path)
    for key in ("schema/draft2020-12/core", "schema/draft7/core"):
        right, total = scored[key]
        assert right == total > 800


def score(repository: Path, shared: Path, sets: str, folder: Path) -> dict[str, list[int]]:
    answer = folder / "scores.json"
    adapter = repository / "tests" / "tools" / "corpus_adapter.py"
    scorer = shared / "tools" / "score_corpora.py"
    subprocess.run(
        [sys.executable, str(scorer), "--adapter", str(adapter), "--sets", sets,
         "--json", str(answer)],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    loaded: dict[str, list[int]] = json.loads(answer.read_text())
    return loaded
