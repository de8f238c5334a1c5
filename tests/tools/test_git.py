"""git_status, git_diff and git_log with real repositories, honest ones and baits."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import settings_with
from holdfast.protocol.tools import Allowed
from holdfast.tools.git import GIT_TOOLS, NO_GIT
from holdfast.tools.own import OwnPlaces
from holdfast.tools.repository import View, find, view_of
from tests.tools.conftest import Bench

ALL = ("git_status", "git_diff", "git_log")


def git(folder: Path, *words: str) -> str:
    """Run git as the user would, without the settings of this machine."""
    person = {
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.net",
        "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    }
    also = {name.replace("AUTHOR", "COMMITTER"): value for name, value in person.items()}
    none = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(folder), "TZ": "UTC"}
    environment = {"PATH": os.environ["PATH"], **person, **also, **none}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def commit(folder: Path, message: str, **files: str) -> None:
    for name, text in files.items():
        write(folder, name.replace("__", "/").replace("_txt", ".txt"), text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def repo(bench: Bench) -> Bench:
    git(bench.workspace, "init", "--quiet", "--initial-branch=main")
    commit(bench.workspace, "Begin", a_txt="one\n", src__b_txt="two\n")
    return bench


async def shown(bench: Bench, name: str, /, **arguments: object) -> str:
    result = await bench.call(name, **arguments)
    assert result.status == "ok", result.text
    return result.text


async def refused(bench: Bench, name: str, /, **arguments: object) -> str:
    result = await bench.call(name, **arguments)
    assert result.status == "error", result.text
    return result.text


# --- plain use ------------------------------------------------------------------------------------


async def test_status_shows_the_branch_and_staged_changed_and_untracked_files(repo: Bench) -> None:
    assert await shown(repo, "git_status") == "## main\nNothing to commit.\n"
    write(repo.workspace, "a.txt", "one more\n")
    write(repo.workspace, "src/b.txt", "two more\n")
    write(repo.workspace, "new.txt", "")
    git(repo.workspace, "add", "src/b.txt")
    assert await shown(repo, "git_status") == "## main\n M a.txt\nM  src/b.txt\n?? new.txt\n"
    assert await shown(repo, "git_status", paths=["src"]) == "## main\nM  src/b.txt\n"


async def test_a_change_in_the_second_of_the_index_is_seen(repo: Bench) -> None:
    """Git knows such a file only by the time of the index, which a careless copy would lose."""
    file, index = repo.workspace / "a.txt", repo.workspace / ".git" / "index"
    git(repo.workspace, "config", "core.trustctime", "false")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    git(repo.workspace, "update-index", "--refresh")
    file.write_text("uno\n")
    for path in (file, index):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert " M a.txt" in await shown(repo, "git_status")
    assert "+uno\n" in await shown(repo, "git_diff")


async def test_status_says_that_a_merge_is_not_finished(repo: Bench) -> None:
    git(repo.workspace, "checkout", "--quiet", "-b", "side")
    commit(repo.workspace, "Side", c_txt="three\n")
    git(repo.workspace, "checkout", "--quiet", "main")
    git(repo.workspace, "merge", "--quiet", "--no-ff", "--no-commit", "side")
    assert await shown(repo, "git_status") == "## main\nA  c.txt\nA merge is not finished.\n"


async def test_a_diff_shows_what_is_not_staged_what_is_and_what_revisions_changed(repo: Bench) -> None:
    assert await shown(repo, "git_diff") == "No changes."
    write(repo.workspace, "a.txt", "uno\n")
    write(repo.workspace, "src/b.txt", "due\n")
    git(repo.workspace, "add", "src")
    plain, staged = await shown(repo, "git_diff"), await shown(repo, "git_diff", staged=True)
    assert "-one\n+uno\n" in plain
    assert "src/b.txt" not in plain
    assert "-two\n+due\n" in staged
    assert "a.txt" not in staged
    git(repo.workspace, "commit", "--quiet", "--message", "Italian")
    assert "-two\n+due\n" in await shown(repo, "git_diff", revision="HEAD~1..HEAD")
    both = await shown(repo, "git_diff", revision="HEAD~1")
    assert "+due\n" in both
    assert "+uno\n" in both
    assert "+due\n" not in await shown(repo, "git_diff", revision="HEAD~1", paths=["a.txt"])
    assert await shown(repo, "git_diff", stat=True) == (
        " a.txt | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n"
    )


async def test_three_dots_compare_with_where_two_branches_parted(repo: Bench) -> None:
    git(repo.workspace, "checkout", "--quiet", "-b", "side")
    commit(repo.workspace, "Side", c_txt="three\n")
    git(repo.workspace, "checkout", "--quiet", "main")
    commit(repo.workspace, "Main", d_txt="four\n")
    text = await shown(repo, "git_diff", revision="main...side")
    assert "+three\n" in text
    assert "four" not in text
    assert "-four\n" in await shown(repo, "git_diff", revision="main..side")


async def test_the_log_lists_commits_newest_first(repo: Bench) -> None:
    commit(repo.workspace, "Change b\n\nBecause.", src__b_txt="due\n")
    first, second = git(repo.workspace, "log", "--format=%h").split()
    line, begin = "2026-01-02 03:04 Ada:", f"{second} 2026-01-02 03:04 Ada: Begin\n"
    assert await shown(repo, "git_log") == f"{first} {line} Change b (HEAD -> main)\n{begin}"
    assert await shown(repo, "git_log", paths=["a.txt"]) == begin
    assert await shown(repo, "git_log", skip=1) == begin
    assert await shown(repo, "git_log", revision="HEAD~1") == begin
    assert await shown(repo, "git_log", limit=1) == f"{first} {line} Change b (HEAD -> main)\n"
    whole = await shown(repo, "git_log", body=True, limit=1)
    assert "Author: Ada <ada@example.net>" in whole
    assert "    Because.\n" in whole
    assert "M\tsrc/b.txt\n" in whole


async def test_the_log_lists_no_more_commits_than_its_limit(
    repo: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.tools.git.MAX_COMMITS", 2)
    for text in "xyz":
        commit(repo.workspace, text, a_txt=text)
    assert (await shown(repo, "git_log", limit=9)).count("\n") == 2


async def test_a_repository_without_a_commit_has_a_status(bench: Bench) -> None:
    git(bench.workspace, "init", "--quiet", "--initial-branch=main")
    write(bench.workspace, "new.txt", "")
    assert await shown(bench, "git_status") == "## No commits yet on main\n?? new.txt\n"
    assert "bad revision 'HEAD'" in await refused(bench, "git_log")


@pytest.mark.parametrize("name", ALL)
async def test_without_a_repository_the_tools_say_so_and_are_not_offered(bench: Bench, name: str) -> None:
    assert await refused(bench, name) == "The workspace is not in a git repository."
    assert name not in [spec.name for spec in bench.tools.specs(bench.settings)]
    git(bench.workspace, "init", "--quiet")
    assert name in [spec.name for spec in bench.tools.specs(bench.settings)]


async def test_the_tools_run_in_read_only_mode_without_asking(repo: Bench) -> None:
    repo.settings = settings_with(ModelFacts("script", "x"), str(repo.workspace), autonomy="read-only")
    for name in ALL:
        assert isinstance(await repo.admit(name), Allowed)
        await shown(repo, name)


async def test_a_program_of_the_workspace_is_not_taken_for_git(
    repo: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, marker = repo.workspace / "bin" / "git", repo.workspace / "ran"
    write(repo.workspace, "bin/git", f"#!/bin/sh\ntouch {marker}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    assert (await shown(repo, "git_status")).startswith("## main\n")
    assert not marker.exists()
    monkeypatch.setenv("PATH", str(fake.parent))
    assert await refused(repo, "git_status") == NO_GIT
    assert not {spec.name for spec in repo.tools.specs(repo.settings)} & GIT_TOOLS


async def test_in_a_folder_of_a_repository_only_that_folder_is_shown(repo: Bench) -> None:
    top = repo.workspace
    commit(top, "Only a", a_txt="uno\n")
    write(top, "a.txt", "changed above\n")
    write(top, "src/b.txt", "changed here\n")
    repo.workspace = top / "src"
    repo.settings = settings_with(ModelFacts("script", "x"), str(repo.workspace), autonomy="full")
    assert " a.txt" not in await shown(repo, "git_status")
    text = await shown(repo, "git_diff")
    assert "changed here" in text
    assert "above" not in text
    assert "Only a" not in await shown(repo, "git_log")
    assert await refused(repo, "git_diff", paths=["../a.txt"])


async def test_a_linked_working_tree_works(repo: Bench) -> None:
    other = repo.workspace.parent / "linked"
    git(repo.workspace, "worktree", "add", "--quiet", "-b", "side", str(other))
    commit(other, "On the side", c_txt="three\n")
    write(other, "a.txt", "uno\n")
    repo.workspace = other
    repo.settings = settings_with(ModelFacts("script", "x"), str(other), autonomy="full")
    assert await shown(repo, "git_status") == "## side\n M a.txt\n"
    assert "On the side (HEAD -> side)" in await shown(repo, "git_log")
    assert "+uno\n" in await shown(repo, "git_diff")


async def test_a_submodule_as_the_workspace_is_read_if_it_leads_back(repo: Bench, tmp_path: Path) -> None:
    outer, copy = tmp_path / "outer", tmp_path / "copy"
    for folder in (outer, copy):
        folder.mkdir()
    git(outer, "init", "--quiet")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repo.workspace), "sub")
    repo.workspace = outer / "sub"
    assert "Begin" in await shown(repo, "git_log")
    (copy / ".git").write_text(f"gitdir: {outer}/.git/modules/sub\n")
    repo.workspace = copy
    assert "nothing there leads back" in await refused(repo, "git_log")


async def test_a_submodule_is_left_out_and_its_config_runs_nothing(repo: Bench, tmp_path: Path) -> None:
    inner, marker = tmp_path / "inner", tmp_path / "ran-core.fsmonitor"
    inner.mkdir()
    git(inner, "init", "--quiet")
    commit(inner, "Inner", i_txt="i\n")
    git(repo.workspace, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    config = repo.workspace / ".git" / "modules" / "sub" / "config"
    config.write_text(config.read_text() + _baits(tmp_path, ["core.fsmonitor"]))
    write(repo.workspace, "sub/i.txt", "changed\n")
    assert await shown(repo, "git_status") == "## main\nA  .gitmodules\n"
    for arguments in ({}, {"staged": True}, {"revision": "HEAD"}):
        assert "Subproject" not in await shown(repo, "git_diff", **arguments)
    assert not marker.exists()
    plain_git(repo, "status")
    assert marker.exists()


@pytest.mark.parametrize("name", ["git_diff", "git_log"])
@pytest.mark.parametrize("revision", ["--output=x", "-p", "HEAD:.env", "HEAD..--all", ":/x", "a b", "@{u}\n"])
async def test_what_is_not_a_revision_is_refused(repo: Bench, name: str, revision: str) -> None:
    assert "is not a revision" in await refused(repo, name, revision=revision)
    assert not (repo.workspace / "x").exists()


async def test_an_unknown_revision_is_an_error_in_gits_words(repo: Bench) -> None:
    assert "nowhere" in await refused(repo, "git_log", revision="nowhere")
    assert "nowhere" in await refused(repo, "git_diff", revision="nowhere")


@pytest.mark.requirement("L2")
@pytest.mark.parametrize("name", ALL)
async def test_paths_are_judged_and_never_options_or_patterns(repo: Bench, name: str) -> None:
    for path in ("../outside", "/etc/passwd", ".env", "/proc/self/environ"):
        await refused(repo, name, paths=[path])
    for path in ("--output=x", ":(top)", "*"):
        assert "src/b.txt" not in await shown(repo, name, paths=[path])
    assert not (repo.workspace / "x").exists()


async def test_two_thousand_files_take_bounded_time(repo: Bench) -> None:
    for number in range(2_000):
        write(repo.workspace, f"many/{number % 50}/{number}.txt", "text\n")
    commit(repo.workspace, "Many")
    for number in range(2_000):
        write(repo.workspace, f"many/{number % 50}/{number}.txt", "other text\n")
    began = time.process_time(), time.monotonic()
    assert (await shown(repo, "git_status")).count("\n") == 2_001
    assert (await shown(repo, "git_diff")).count("\n+other text") == 2_000
    assert time.process_time() - began[0] < 10
    assert time.monotonic() - began[1] < 60


async def test_a_diff_of_too_many_files_asks_for_fewer(repo: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.tools.git.MAX_NAMES", 1)
    write(repo.workspace, "a.txt", "uno\n")
    write(repo.workspace, "src/b.txt", "due\n")
    assert "Name some of them" in await refused(repo, "git_diff")
    assert "+due" in await shown(repo, "git_diff", paths=["src"])


# --- secrets --------------------------------------------------------------------------------------


async def test_a_diff_leaves_out_secret_files_and_names_them(repo: Bench) -> None:
    commit(repo.workspace, "Mistake", **{".env": "KEY=heron-1\n", "src/id_rsa": "heron-2\n"})
    write(repo.workspace, ".env", "KEY=heron-3\n")
    write(repo.workspace, "a.txt", "uno\n")
    git(repo.workspace, "mv", "src/id_rsa", "src/other_id_rsa.pem")
    for arguments in ({}, {"staged": True}, {"revision": "HEAD~1"}, {"revision": "HEAD~1..HEAD"}):
        text = await shown(repo, "git_diff", **arguments)
        assert "heron" not in text
        assert "because they may not be read" in text
    assert "+uno\n" in await shown(repo, "git_diff")


async def test_a_secret_of_the_history_is_left_out_also_when_its_name_leads_elsewhere_now(
    repo: Bench,
) -> None:
    commit(repo.workspace, "Mistake", **{".env": "KEY=heron-1\n"})
    (repo.workspace / ".env").unlink()
    (repo.workspace / ".env").symlink_to("a.txt")
    assert "heron" not in await shown(repo, "git_diff")
    assert "heron" not in await shown(repo, "git_diff", revision="HEAD~1..HEAD")


async def test_a_file_that_is_another_name_of_a_secret_one_is_left_out(repo: Bench) -> None:
    write(repo.workspace, ".env", "KEY=heron-1\n")
    (repo.workspace / "a.txt").unlink()
    os.link(repo.workspace / ".env", repo.workspace / "a.txt")
    text = await shown(repo, "git_diff")
    assert "heron" not in text
    assert "a.txt]" in text


async def test_a_folder_that_became_a_link_does_not_lead_out(repo: Bench, tmp_path: Path) -> None:
    write(tmp_path, "outside/b.txt", "heron\n")
    (repo.workspace / "src" / "b.txt").unlink()
    (repo.workspace / "src").rmdir()
    (repo.workspace / "src").symlink_to(tmp_path / "outside")
    assert "heron" not in await shown(repo, "git_diff")


# --- baits ----------------------------------------------------------------------------------------

PROGRAMS = (
    "core.fsmonitor", "core.pager", "pager.log", "pager.diff", "pager.status", "core.sshCommand", "core.askPass",
    "core.editor", "core.alternateRefsCommand", "gpg.program", "gpg.ssh.program", "diff.external",
    "interactive.diffFilter", "diff.bait.textconv", "diff.bait.command", "filter.bait.clean", "filter.bait.smudge",
    "filter.bait.process", "alias.status", "alias.diff", "alias.log", "credential.helper",
    "remote.origin.uploadpack", "trailer.x.command",
)  # fmt: skip
RUN_BY_PLAIN_GIT = ("core.fsmonitor", "diff.external", "diff.bait.textconv", "filter.bait.clean")


@pytest.mark.parametrize("is_included", [False, True], ids=["config", "include"])
async def test_no_program_of_the_config_runs(repo: Bench, tmp_path: Path, is_included: bool) -> None:
    _bait(repo, PROGRAMS, is_included=is_included)
    for name in ALL:
        await shown(repo, name)
    for arguments in ({"staged": True}, {"revision": "HEAD"}, {"stat": True}):
        await shown(repo, "git_diff", **arguments)
    await shown(repo, "git_log", body=True)
    assert list(tmp_path.glob("ran-*")) == []


async def test_gits_own_options_switch_the_usual_programs_off_too(
    repo: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the config of the repository ever reached git, these would still not run."""
    usual = ("core.fsmonitor", "core.pager", "pager.log", "pager.diff", "diff.external", "diff.bait.textconv")
    _bait(repo, usual, is_included=False)
    write(repo.workspace, "hooks/post-index-change", f"#!/bin/sh\ntouch {tmp_path}/ran-hook\n")
    (repo.workspace / "hooks" / "post-index-change").chmod(0o755)
    git(repo.workspace, "config", "core.hooksPath", str(repo.workspace / "hooks"))

    def as_it_is(view: View, _: str) -> None:
        shutil.copy(Path(view.folder, "theirs"), Path(view.folder, "config"))

    monkeypatch.setattr("holdfast.tools.git.write_config", as_it_is)
    os.utime(repo.workspace / "src" / "b.txt", (1, 1))  # git would refresh the index
    for name in ALL:
        await shown(repo, name)
    assert list(tmp_path.glob("ran-*")) == []


@pytest.mark.parametrize("key", RUN_BY_PLAIN_GIT)
def test_plain_git_runs_the_baits(repo: Bench, tmp_path: Path, key: str) -> None:
    """Otherwise the test above would show nothing."""
    _bait(repo, [key], is_included=True)
    plain_git(repo, "status")
    plain_git(repo, "diff")
    assert (tmp_path / f"ran-{key}").exists()


async def test_no_hook_runs(repo: Bench) -> None:
    marker = repo.workspace / "ran"
    for name in ("post-index-change", "fsmonitor-watchman", "post-checkout", "reference-transaction"):
        for folder in (".git/hooks", "hooks"):
            write(repo.workspace, f"{folder}/{name}", f"#!/bin/sh\ntouch {marker}\n")
            (repo.workspace / folder / name).chmod(0o755)
    git(repo.workspace, "config", "core.hooksPath", str(repo.workspace / "hooks"))
    os.utime(repo.workspace / "a.txt", (1, 1))  # git would refresh the index
    for name in ALL:
        await shown(repo, name)
    assert not marker.exists()


def plain_git(repo: Bench, *words: str) -> None:
    subprocess.run(["git", "-C", repo.workspace, *words], capture_output=True, check=False)


def _bait(repo: Bench, keys: Iterable[str], *, is_included: bool) -> None:
    """Make the config name programs, each of which would leave a file."""
    git(repo.workspace, "config", "log.showSignature", "true")
    write(repo.workspace, ".gitattributes", "* diff=bait filter=bait\n")
    write(repo.workspace, "a.txt", "uno\n")
    text = _baits(repo.workspace.parent, keys)
    if is_included:
        write(repo.workspace.parent, "included", text)
        text = f"[include]\n\tpath = {repo.workspace.parent / 'included'}\n"
    config = repo.workspace / ".git" / "config"
    config.write_text(config.read_text() + text)


def _baits(folder: Path, keys: Iterable[str]) -> str:
    lines = []
    for key in keys:
        program = folder / f"bait-{key}"
        program.write_text(f"#!/bin/sh\ntouch {folder}/ran-{key}\ncat\n")
        program.chmod(0o755)
        section, _, rest = key.partition(".")
        middle, _, name = rest.rpartition(".")
        head = f'[{section} "{middle}"]' if middle else f"[{section}]"
        lines += [head, f'\t{name} = "{program}"']
    return "\n".join([*lines, ""])


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Another repository, whose content nobody may see."""
    folder = tmp_path / "outside"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, "heron one", a_txt="heron two\n", h_txt="heron three\n")
    write(folder, "a.txt", "heron four\n")
    return folder


async def _shows_nothing_of_it(bench: Bench) -> None:
    for name in ALL:
        assert "heron" not in (await bench.call(name)).text
    assert "heron" not in (await bench.call("git_diff", revision="HEAD")).text


async def test_core_worktree_does_not_lead_out(repo: Bench, outside: Path) -> None:
    git(repo.workspace, "config", "core.worktree", str(outside))
    await _shows_nothing_of_it(repo)
    assert await shown(repo, "git_status") == "## main\nNothing to commit.\n"


@pytest.mark.parametrize("how", ["link", "file", "relative file"])
async def test_a_git_entry_that_leads_out_is_refused(bench: Bench, outside: Path, how: str) -> None:
    entry = bench.workspace / ".git"
    if how == "link":
        entry.symlink_to(outside / ".git")
    else:
        entry.write_text(f"gitdir: {outside / '.git' if how == 'file' else '../outside/.git'}\n")
    await _shows_nothing_of_it(bench)
    for name in ALL:
        assert "outside the workspace" in await refused(bench, name)


@pytest.mark.parametrize(
    "name", ["objects", "refs", "HEAD", "index", "config", "packed-refs", "objects/pack"]
)
async def test_a_part_of_the_repository_that_leads_out_is_refused(
    repo: Bench, outside: Path, name: str
) -> None:
    git(outside, "pack-refs", "--all")
    git(outside, "repack", "-adq")
    part = repo.workspace / ".git" / name
    if part.exists():
        part.rename(repo.workspace / "aside")
    part.symlink_to(outside / ".git" / name)
    await _shows_nothing_of_it(repo)
    await refused(repo, "git_status")


async def test_borrowed_objects_and_a_common_folder_elsewhere_are_refused(repo: Bench, outside: Path) -> None:
    alternates = repo.workspace / ".git/objects/info/alternates"
    write(alternates.parent, alternates.name, f"{outside / '.git/objects'}\n")
    assert "alternates" in await refused(repo, "git_log")
    alternates.unlink()
    write(repo.workspace, ".git/commondir", "../../outside/.git\n")
    assert "commondir" in await refused(repo, "git_log")
    await _shows_nothing_of_it(repo)


async def test_an_unknown_extension_and_a_damaged_head_are_refused(repo: Bench) -> None:
    config = repo.workspace / ".git" / "config"
    plain = config.read_text()
    config.write_text(f"{plain}[extensions]\n\tsurprise = yes\n")
    assert "surprise" in await refused(repo, "git_status")
    config.write_text(plain)
    await shown(repo, "git_status")
    write(repo.workspace, ".git/HEAD", "ref: ../../etc/passwd\n")
    assert "HEAD" in await refused(repo, "git_status")


async def test_git_writes_nothing_into_the_repository(repo: Bench) -> None:
    os.utime(repo.workspace / "a.txt", (1, 1))
    folder = repo.workspace / ".git"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for name in ALL:
        await shown(repo, name)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


# --- damaged on purpose ---------------------------------------------------------------------------


async def test_a_name_in_the_index_that_leads_out_of_the_workspace_is_not_followed(repo: Bench) -> None:
    outside = repo.workspace.parent / "plans"
    outside.write_text("Attack at dawn.\n")
    write(repo.workspace, "zz/plans", "one\n")
    git(repo.workspace, "add", "--all")
    index = repo.workspace / ".git" / "index"
    content = index.read_bytes()[:-20].replace(b"zz/plans", b"../plans")
    index.write_bytes(content + hashlib.sha1(content).digest())
    for arguments in ({}, {"paths": ["."]}, {"revision": "HEAD"}):
        result = await repo.call("git_diff", **arguments)
        assert "dawn" not in result.text
        assert result.status == "error", result.text


async def test_a_revision_is_always_a_commit(repo: Bench) -> None:
    """The names of two files that are compared as such are in no list, so nobody could leave out a secret one."""
    for name, text in (("one", "TOKEN=1\n"), ("two", "TOKEN=2\n")):
        write(repo.workspace, ".env", text)
        git(repo.workspace, "tag", name, git(repo.workspace, "hash-object", "-w", ".env").strip())
    for revision in ("one..two", "one...two", "one"):
        assert "TOKEN" not in await refused(repo, "git_diff", revision=revision)


async def test_objects_elsewhere_in_the_workspace_are_not_those_of_its_repository(repo: Bench) -> None:
    other = repo.workspace / "other"
    other.mkdir()
    git(other, "init", "--quiet", "--initial-branch=main")
    commit(other, "Another one", c_txt="three\n")
    write(repo.workspace, ".git/commondir", "../other/.git\n")
    assert "commondir" in await refused(repo, "git_log")


# --- what a killed process leaves -----------------------------------------------------------------


async def test_what_a_killed_process_left_is_removed_and_nothing_else(
    repo: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, precious = tmp_path / "other-home", tmp_path / "precious"
    (places := home / "run").mkdir(parents=True)
    precious.mkdir()
    own = OwnPlaces((str(home),))
    program = (
        "import os, signal, sys\n"
        "from holdfast.tools.own import OwnPlaces\n"
        "from holdfast.tools.repository import find, view_of\n"
        "own = OwnPlaces((sys.argv[2],))\n"
        "with view_of(find(sys.argv[1], own), own):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, str(repo.workspace), str(home)]
    killed = await asyncio.to_thread(subprocess.run, command, timeout=60)
    assert killed.returncode == -9
    (left,) = places.iterdir()
    for name in ("busy", "young", "other"):
        (places / f"holdfast-git-{name}").mkdir()
    (places / "mine").mkdir()
    (places / "holdfast-git-link").symlink_to(precious)
    busy = os.open(places / "holdfast-git-busy", os.O_RDONLY)
    fcntl.flock(busy, fcntl.LOCK_EX)
    for path in (left, *(places / name for name in ("holdfast-git-busy", "holdfast-git-other", "mine"))):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    os.utime(places / "holdfast-git-link", (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    with view_of(find(str(repo.workspace), own), own):
        pass
    os.close(busy)
    assert {path.name.removeprefix("holdfast-git-") for path in places.iterdir()} == {
        "busy", "young", "mine", "link",
    }  # fmt: skip
    assert precious.exists()
