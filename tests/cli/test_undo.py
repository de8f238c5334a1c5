"""`holdfast undo` and `show --diff`, with real files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Cli, calls, says


def run(cli: Cli, *lines: dict[str, Any], task: str = "edit", session: str = "cli:edit") -> str:
    """A run with these responses; the id of its session."""
    name = f"m{len(list(cli.folder.glob('*.jsonl')))}"
    script = [says("unused")] * answered(cli, session) + list(lines)
    done = cli("run", task, "-m", cli.model(*script, name=name), "-s", session, "--json")
    assert done.code == 0, done.err
    return str(done.json["session"])


def answered(cli: Cli, session: str) -> int:
    shown = cli("show", session, "--requests", "--json")
    return len(shown.out.splitlines()) if shown.code == 0 else 0


def write(path: str, content: str) -> dict[str, Any]:
    return calls("write_file", path=path, content=content)


def edit(path: str, old: str, new: str) -> dict[str, Any]:
    return calls("edit_file", path=path, old=old, new=new)


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files and folders with their content and mode."""
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else b"", path.stat().st_mode)
        for path in folder.rglob("*")
    }


@pytest.fixture
def work(cli: Cli) -> Path:
    (cli.workspace / "a.txt").write_text("first\n")
    (cli.workspace / "a.txt").chmod(0o750)
    (cli.workspace / "raw.bin").write_bytes(b"\xff\x00\xfe")
    return cli.workspace


@pytest.mark.requirement("H2")
def test_an_undo_puts_back_content_mode_and_folders(cli: Cli, work: Path) -> None:
    before = tree(work)
    session = run(
        cli,
        edit("a.txt", "first", "second"),
        edit("a.txt", "second", "third"),
        write("raw.bin", "text now"),
        write("new/deep/b.txt", "b"),
        write("new/c.txt", "c"),
        says("Done."),
    )
    after = tree(work)
    assert cli("undo", session, "--dry-run", "--json").json == {
        "session": session, "restored": ["a.txt", "raw.bin", "new/deep/b.txt", "new/c.txt"], "kept": [],
    }  # fmt: skip
    assert tree(work) == after
    found = cli("undo", "cli:edit", "--json")
    assert found.code == 0
    assert sorted(found.json["restored"]) == ["a.txt", "new/c.txt", "new/deep/b.txt", "raw.bin"]
    assert found.json["kept"] == []
    assert tree(work) == before
    again = cli("undo", session, "--json")
    assert (again.code, again.json) == (0, {"session": session, "restored": [], "kept": []})
    assert cli("undo", session, "--redo", "--json").code == 0
    assert tree(work) == after
    assert cli("undo", session).code == 0
    assert tree(work) == before
    assert cli("fsck").code == 0
    assert cli("replay", session).code == 0


@pytest.mark.requirement("H2")
def test_messages_are_undone_one_by_one_and_made_again_in_order(cli: Cli, work: Path) -> None:
    states = [tree(work)]
    for number in range(1, 4):
        session = run(cli, write("a.txt", f"{number}\n"), write(f"n{number}.txt", "x"), says("Done."))
        states.append(tree(work))
        run(cli, says("Only words."))
    assert cli("undo", session, "--json").json["restored"] == ["a.txt", "n3.txt"]
    assert tree(work) == states[2]
    assert cli("undo", session, "2").code == 0
    assert tree(work) == states[0]
    assert cli("undo", session, "--redo", "--json").json["restored"] == ["a.txt", "n1.txt"]
    assert tree(work) == states[1]
    assert cli("undo", session, "5", "--redo").code == 0
    assert tree(work) == states[3]
    assert cli("undo", session, "9").code == 0
    assert tree(work) == states[0]
    run(cli, write("a.txt", "another way\n"), says("Done."))
    other = tree(work)
    assert cli("undo", session, "--redo", "--json").json["restored"] == []
    assert cli("undo", session).code == 0
    assert tree(work) == states[0]
    assert cli("undo", session, "9", "--redo", "--json").json["restored"] == ["a.txt"]
    assert tree(work) == other


@pytest.mark.requirement("H2")
def test_a_file_that_something_else_changed_stays_and_is_named(cli: Cli, work: Path) -> None:
    session = run(
        cli, write("a.txt", "agent\n"), write("b.txt", "b\n"), write("c.txt", "c\n"), write("d.txt", "d\n"),
        write("e.txt", "e\n"), write("f.txt", "f\n"), says("Done."),
    )  # fmt: skip
    (work / "a.txt").write_text("agent\nand me\n")
    (work / "c.txt").unlink()
    (work / "c.txt").symlink_to("a.txt")
    os.link(work / "d.txt", work / "twin.txt")
    (work / "e.txt").unlink()
    (work / "e.txt").mkdir()
    (work / "f.txt").unlink()
    left = tree(work)
    found = cli("undo", session, "--json")
    assert found.code == 1
    assert found.json["restored"] == ["b.txt"]
    reasons = {each["path"]: each["reason"] for each in found.json["kept"]}
    assert sorted(reasons) == ["a.txt", "c.txt", "d.txt", "e.txt"]  # f.txt is what it was: not there
    assert "changed" in reasons["a.txt"]
    assert "link" in reasons["c.txt"]
    assert "hard links" in reasons["d.txt"]
    assert "folder" in reasons["e.txt"]
    del left["b.txt"]
    assert tree(work) == left
    plain = cli("undo", session)
    assert plain.code == 1
    assert "+and me" in plain.out
    (work / "a.txt").write_text("agent\n")
    assert cli("undo", session, "--json").json["restored"] == ["a.txt"]
    assert (work / "a.txt").read_text() == "first\n"


@pytest.mark.requirement("H2")
def test_a_folder_goes_with_its_last_file_whichever_was_the_first_in_it(cli: Cli, work: Path) -> None:
    before = tree(work)
    session = run(cli, write("f/i.txt", "i"), write("f/g/h.txt", "h"), says("Done."))
    (work / "f" / "g" / "h.txt").write_text("mine")
    assert cli("undo", session, "--json").json["restored"] == ["f/i.txt"]
    (work / "f" / "g" / "h.txt").write_text("h")
    assert cli("undo", session).code == 0
    assert tree(work) == before


@pytest.mark.requirement("H2")
def test_the_model_is_told_of_an_undo_in_its_next_turn(cli: Cli, work: Path) -> None:
    session = run(cli, write("a.txt", "second\n"), says("Done."))
    assert cli("undo", session).code == 0
    run(cli, says("I see."), task="look again")
    count = len(cli("show", session, "--requests", "--json").out.splitlines())
    body = cli("show", session, "--request", str(count)).out
    assert "took back your edits of these files: a.txt" in body
    assert body.index("took back") < body.index("look again")
    types = [json.loads(line)["type"] for line in cli("show", session, "--events", "--json").out.splitlines()]
    at = types.index("FilesRestoring")
    assert types[at : at + 3] == ["FilesRestoring", "FilesRestored", "NoteAdded"]
    assert "undo of edits" in cli("show", session).out
    assert cli("replay", session).code == 0


def test_each_diff_masks_the_key_of_a_provider_that_only_the_user_file_names(cli: Cli, work: Path) -> None:
    key = "blue-tulip-" + "garden-7731"
    cli.configure('[providers.openai]\napi_key_env = "MY_HOUSE"\n')
    cli.environ["MY_HOUSE"] = key
    (work / "conf.ini").write_text(f"house {key}\nport = 1\n")
    session = run(cli, edit("conf.ini", "port = 1", "port = 2"), says("Done."))
    shown = cli("show", session, "--diff")
    assert " house [redacted:known]" in shown.out
    (work / "conf.ini").write_text(f"house {key}\nport = 3\n")
    kept = cli("undo", session)
    assert kept.code == 1
    assert " house [redacted:known]" in kept.out
    assert key not in shown.out + kept.out + cli("show", session, "--diff", "--json").out


@pytest.mark.requirement("H2")
def test_an_undo_puts_back_secrets_and_shows_them_masked(cli: Cli, work: Path) -> None:
    secret = "sk-" + "ant-api03-" + "q7Z" * 16
    (work / "conf.ini").write_text(f"key = {secret}\nport = 1\n")
    session = run(cli, edit("conf.ini", "port = 1", "port = 2"), says("Done."))
    shown = cli("show", session, "--diff")
    assert "+port = 2" in shown.out
    assert secret not in shown.out + cli("show", session, "--diff", "--json").out
    assert "[redacted:" in shown.out
    out = cli("export", session, "-").out
    assert secret not in out
    images = [path for path in (cli.home / "files").rglob("*") if path.is_file()]
    assert any(secret.encode() in path.read_bytes() for path in images)
    assert {path.stat().st_mode & 0o777 for path in images} == {0o600}
    folders = [cli.home / "files", *(path for path in (cli.home / "files").rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert cli("undo", session).code == 0
    assert (work / "conf.ini").read_text() == f"key = {secret}\nport = 1\n"
    assert cli("delete", session, "--yes").code == 0
    assert not [
        path for path in cli.home.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]


@pytest.mark.requirement("H2")
def test_an_edit_whose_path_held_a_secret_is_named_and_not_undone(cli: Cli, work: Path) -> None:
    secret = "sk-" + "ant-api03-" + "q7Z" * 16
    session = run(cli, write(f"{secret}.txt", "x"), write("a.txt", "x"), says("Done."))
    assert (work / f"{secret}.txt").read_text() == "x"
    found = cli("undo", session, "--json")
    assert (found.code, found.json["restored"]) == (1, ["a.txt"])
    assert [each["path"] for each in found.json["kept"]] == ["[redacted:anthropic].txt"]
    assert "secret" in found.json["kept"][0]["reason"]
    assert secret not in cli("export", session, "-").out


SHORT = "tr0ub" + "4dor"
"""A secret that a hash would tell."""


@pytest.mark.requirement("H2", "A4")
def test_edits_that_held_a_secret_are_undone_and_made_again(cli: Cli, work: Path) -> None:
    before = tree(work)
    code = f'user = "me"\npassword = "{SHORT}"\n'
    session = run(
        cli, write("conf.py", code), edit("a.txt", "first", code), edit("conf.py", "me", "you"), says("Done.")
    )
    after = tree(work)
    assert SHORT in (work / "a.txt").read_text()
    for arguments, wanted in (([], before), (["--redo"], after), ([], before), (["--redo"], after)):
        found = cli("undo", session, *arguments, "--json")
        assert (found.code, found.json["kept"]) == (0, [])
        assert tree(work) == wanted
    assert cli("fork", session, "--at", "1", "--copy", str(cli.folder / "copy")).code == 2
    (started,) = [row["seq"] for row in rows(cli, session) if row["type"] == "RunStarted"]
    assert cli("fork", session, "--at", str(started), "--copy", str(cli.folder / "copy")).code == 0
    assert tree(cli.folder / "copy") == before
    assert cli("rewind", session, "--to", "0", "--files").code == 0
    assert tree(work) == before
    assert cli("fsck").code == 0
    assert cli("replay", session).code == 0


def rows(cli: Cli, session: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("show", session, "--events", "--json").out.splitlines()]


@pytest.mark.requirement("H2", "A4")
def test_nothing_that_is_stored_or_shown_helps_to_guess_a_secret_of_an_edit(cli: Cli, work: Path) -> None:
    code = f'user = "me"\npassword = "{SHORT}"\n'
    session = run(cli, write("conf.py", code), edit("conf.py", "me", "you"), says("Done."))
    assert cli("undo", session).code == 0
    assert cli("undo", session, "--redo").code == 0
    told = cli("export", session, "-").out + "".join(
        path.read_bytes().decode("latin-1") for path in cli.home.glob("*.db*")
    )
    for content in (code, code.replace("me", "you"), SHORT, f'"{SHORT}"'):
        assert hashlib.sha256(content.encode()).hexdigest() not in told
    (key,) = [path for path in (cli.home / "files").iterdir() if path.is_file() and path.name == ".key"]
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32
    assert key.read_bytes() not in told.encode("latin-1")
    shown = cli("show", session, "--diff")
    assert '+password = "[redacted:' in shown.out
    assert '+user = "you"' in shown.out
    assert SHORT not in told + shown.out + cli("show", session, "--diff", "--json").out


@pytest.mark.requirement("H2", "A4")
def test_a_diff_hides_a_secret_that_only_the_arguments_show(cli: Cli, work: Path) -> None:
    key = "sk-" + "ant-api03-" + "q7Z" * 16
    (work / "word.txt").write_text("OKAY other\n")
    session = run(cli, edit("word.txt", "K", key), edit("word.txt", "other", "more"), says("Done."))
    assert (work / "word.txt").read_text() == f"O{key}AY more\n"
    shown = cli("show", session, "--diff")
    assert (
        shown.out == "word.txt: an edit of it contained what looks like a secret; open the file to see it.\n"
    )
    (work / "word.txt").write_text(f"O{key}AY mine\n")
    found = cli("undo", session)
    assert found.code == 1
    assert key not in found.out + found.err


@pytest.mark.requirement("H2", "A4")
def test_a_secret_that_lost_its_name_in_a_later_edit_stays_hidden_in_the_diff(cli: Cli, work: Path) -> None:
    session = run(
        cli, write("conf.py", f'password = "{SHORT}"\n'), edit("conf.py", "password", "colour"), says("Done.")
    )
    assert (work / "conf.py").read_text() == f'colour = "{SHORT}"\n'
    shown = cli("show", session, "--diff")
    assert "+colour" in shown.out
    assert SHORT not in shown.out


@pytest.mark.requirement("H2")
def test_all_that_file_tools_changed_is_shown_as_one_diff(cli: Cli, work: Path) -> None:
    session = run(
        cli, edit("a.txt", "first", "second"), edit("a.txt", "second", "third"), write("new.txt", "n"),
        write("raw.bin", "text"), says("Done."),
    )  # fmt: skip
    rows = [json.loads(line) for line in cli("show", session, "--diff", "--json").out.splitlines()]
    assert [(row["path"], row["change"]) for row in rows] == [
        ("a.txt", "changed"), ("new.txt", "added"), ("raw.bin", "changed"),
    ]  # fmt: skip
    assert rows[0]["diff"] == "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-first\n+third\n"
    assert rows[1]["diff"].startswith("--- /dev/null\n+++ b/new.txt\n")
    assert "binary" in rows[2]["diff"]
    (work / "a.txt").write_text("the user's own\n")  # an edit of somebody else is not the session's
    assert cli("show", session, "--diff").out == "".join(row["diff"] for row in rows)
    assert cli("undo", session).code == 1
    rows = [json.loads(line) for line in cli("show", session, "--diff", "--json").out.splitlines()]
    assert [row["path"] for row in rows] == ["a.txt"]


@pytest.mark.requirement("H2")
def test_a_file_that_is_too_large_to_keep_is_not_undone_and_said_so(cli: Cli, work: Path) -> None:
    with (work / "big.bin").open("wb") as file:
        file.truncate((32 << 20) + 1)
    session = run(cli, write("big.bin", "small"), write("a.txt", "x"), says("Done."))
    found = cli("undo", session, "--json")
    assert (found.code, found.json["restored"]) == (1, ["a.txt"])
    assert found.json["kept"] == [
        {"path": "big.bin", "reason": "it was over 32 MiB before the edit, and so large a file is not kept"}
    ]
    assert (work / "big.bin").read_text() == "small"


@pytest.mark.requirement("H2")
def test_what_is_kept_of_files_is_dropped_in_time(cli: Cli, work: Path) -> None:
    cli.configure('[undo]\nkeep = "2d"\n')
    session = run(cli, write("a.txt", "second\n"), says("Done."))
    images = list((cli.home / "files" / session).iterdir())
    assert len(images) == 2
    old = [path.stat().st_mtime - 3 * 86_400 for path in images]
    for path, at in zip(images, old, strict=True):
        os.utime(path, (at, at))
    os.utime(cli.home / "files" / ".swept", (old[0], old[0]))
    run(cli, write("other.txt", "x"), says("Done."), session="cli:other")
    assert not (cli.home / "files" / session).exists()
    found = cli("undo", session, "--json")
    assert (found.code, found.json["restored"]) == (1, [])
    assert "not kept" in found.json["kept"][0]["reason"]
    assert "not kept" in cli("show", session, "--diff").out
    assert cli("fsck").code == 0


@pytest.mark.requirement("H1")
def test_fsck_finds_what_was_changed_of_kept_files(cli: Cli, work: Path) -> None:
    session = run(cli, write("a.txt", "second\n"), says("Done."))
    image = next((cli.home / "files" / session).iterdir())
    image.write_bytes(b"something else")
    found = cli("fsck")
    assert found.code == 1
    assert str(image) in found.out
    image.unlink()
    (cli.home / "files" / "nobody").mkdir()
    (cli.home / "files" / "nobody" / "x").write_text("x")
    assert "not there" in cli("fsck").out


@pytest.mark.requirement("H2")
def test_a_branch_undoes_edits_of_its_parent(cli: Cli, work: Path) -> None:
    before = tree(work)
    session = run(cli, write("a.txt", "second\n"), says("Done."))
    last = len(cli("show", session, "--events", "--json").out.splitlines())
    branch = cli("fork", session, "--at", str(last)).out.strip()
    assert cli("undo", branch).code == 0
    assert tree(work) == before
    assert cli("undo", session, "--json").json["kept"] == []


def test_what_nobody_can_undo_is_a_usage_error_or_waits(cli: Cli, work: Path) -> None:
    assert cli("undo", "nothing", "--json").code == 2
    session = run(cli, says("Only words."))
    assert cli("undo", session, "0").code == 2
    assert cli("undo", session, "--json").json == {"session": session, "restored": [], "kept": []}
    assert "There is nothing to put back." in cli("undo", session).out


@pytest.mark.requirement("H2")
@pytest.mark.parametrize("flags", [(), ("--redo",)])
def test_a_file_whose_permissions_were_changed_since_stays_as_it_is(
    cli: Cli, work: Path, flags: tuple[str, ...]
) -> None:
    run(cli, edit("a.txt", "first", "second"), says("Done."))
    if flags:
        assert cli("undo", "cli:edit").code == 0
    before = (work / "a.txt").read_bytes()
    (work / "a.txt").chmod(0o600)
    ended = cli("undo", "cli:edit", *flags, "--json")
    assert (ended.code, ended.json["restored"]) == (1, [])
    assert ended.json["kept"] == [{"path": "a.txt", "reason": "its permissions have changed since"}]
    assert ((work / "a.txt").read_bytes(), (work / "a.txt").stat().st_mode & 0o777) == (before, 0o600)


@pytest.mark.requirement("H2")
def test_each_file_has_the_verb_for_what_became_of_it(cli: Cli, work: Path) -> None:
    session = run(cli, edit("a.txt", "first", "second"), write("new.txt", "n"), says("Done."))
    assert cli("undo", session, "--dry-run").out == "would be restored  a.txt\nwould be removed  new.txt\n"
    assert cli("undo", session).out == "restored  a.txt\nremoved  new.txt\n"
    assert cli("undo", session, "--redo").out == "written again  a.txt\nwritten again  new.txt\n"
    assert cli("undo", session, "--redo").out == "There is nothing to redo.\n"
    assert "removed  new.txt" in cli("rewind", session, "--to", "0", "--files").out


@pytest.mark.requirement("H2")
def test_a_file_that_was_removed_since_is_said_to_be_removed(cli: Cli, work: Path) -> None:
    session = run(cli, edit("a.txt", "first", "second"), says("Done."))
    (work / "a.txt").unlink()
    found = cli("undo", session, "--json")
    assert (found.code, found.json["kept"]) == (1, [{"path": "a.txt", "reason": "it was removed since"}])
    assert cli("undo", session, "--redo").code == 0


def test_a_session_without_edits_says_that_it_has_no_diff(cli: Cli, work: Path) -> None:
    session = run(cli, write("a.txt", "first\n"), says("Done."))
    shown = cli("show", session, "--diff")
    assert (shown.code, shown.out, shown.err) == (0, "", "File tools changed no files.\n")


def test_an_edit_that_changes_nothing_has_no_diff(cli: Cli, work: Path) -> None:
    ran = cli("run", "x", "-m", cli.model(write("a.txt", "first\n"), says("Done.")))
    assert "secret" not in ran.err


@pytest.mark.requirement("H2")
def test_an_edit_and_its_undo_keep_setuid_and_setgid(cli: Cli, work: Path) -> None:
    (work / "a.txt").chmod(0o6755)
    before = tree(work)
    session = run(cli, edit("a.txt", "first", "second"), says("Done."))
    assert (work / "a.txt").stat().st_mode & 0o7777 == 0o6755
    assert cli("undo", session).code == 0
    assert tree(work) == before


@pytest.mark.requirement("H2")
def test_of_undos_at_the_same_time_one_does_all_and_the_others_nothing(cli: Cli, work: Path) -> None:
    before = tree(work)
    session = run(
        cli, *[write(f"n{n}.txt", "n") for n in range(15)], edit("a.txt", "first", "x"), says("Done.")
    )
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: cli("undo", session, "--json"), range(3)))
    assert tree(work) == before
    assert sum(len(each.json["restored"]) for each in found if each.code == 0) == 16
    assert {each.code for each in found} <= {0, 1}


@pytest.mark.requirement("H2")
def test_what_took_the_place_of_a_file_or_folder_stays(cli: Cli, work: Path) -> None:
    session = run(cli, write("new/deep/c.txt", "c"), edit("a.txt", "first", "x"), says("Done."))
    shutil.rmtree(work / "new")
    (work / "new").write_text("mine")
    (work / "a.txt").unlink()
    (work / "a.txt").mkdir()
    mine = tree(work)
    found = cli("undo", session, "--json")
    assert (found.code, [each["path"] for each in found.json["kept"]]) == (1, ["new/deep/c.txt", "a.txt"])
    assert tree(work) == mine


@pytest.mark.requirement("H2")
def test_an_undo_finds_the_files_again_when_their_folder_is_back(cli: Cli, work: Path) -> None:
    before = tree(work)
    session = run(cli, write("new/c.txt", "c"), edit("a.txt", "first", "x"), says("Done."))
    shutil.copytree(work, cli.folder / "moved")
    shutil.rmtree(work)
    work.mkdir()
    found = cli("undo", session, "--json")
    assert (found.code, [each["path"] for each in found.json["kept"]]) == (1, ["a.txt"])
    shutil.rmtree(work)
    shutil.copytree(cli.folder / "moved", work)
    assert cli("undo", session).code == 0
    assert tree(work) == before


def breakable(cli: Cli, session: str, broken: str) -> Path:
    """Make what is kept of files unusable. Return the path that is in the way."""
    path = cli.home / "files" / broken.format(session=session)
    aside = path.with_name("aside")
    if path.exists():
        path.rename(aside)
    path.touch() if broken != ".key" else path.write_bytes(b"short")
    return path


@pytest.mark.requirement("H2", "L7")
@pytest.mark.parametrize("broken", [".key", "{session}"])
def test_no_file_is_changed_while_the_home_cannot_keep_it(cli: Cli, work: Path, broken: str) -> None:
    session = run(cli, edit("a.txt", "first", "second"), says("Done."))
    path = breakable(cli, session, broken)
    lines = [says("unused")] * 2 + [edit("a.txt", "second", "third"), says("Done.")]
    failed = cli("run", "go on", "-m", cli.model(*lines, name="later"), "-s", "cli:edit")
    assert failed.code == 9, failed.err
    assert str(path) in failed.err.replace("\n", "")
    assert (work / "a.txt").read_text() == "second\n"
    path.unlink()
    path.with_name("aside").rename(path)
    resumed = cli("resume", session)
    assert (resumed.code, (work / "a.txt").read_text()) == (0, "third\n"), resumed.err
    assert cli("undo", session, "2").code == 0
    assert (work / "a.txt").read_text() == "first\n"


@pytest.mark.parametrize("is_folder", [False, True])
def test_no_diff_says_that_a_file_is_gone_that_cannot_be_compared(
    cli: Cli, work: Path, is_folder: bool
) -> None:
    session = run(cli, write("a.txt", "second\n"), says("Done."))
    if is_folder:
        (work / "a.txt").unlink()
        (work / "a.txt").mkdir()
    else:
        os.truncate(work / "a.txt", (32 << 20) + 1)
    found = cli("undo", session)
    assert (found.code, "left as it is  a.txt" in found.out, "/dev/null" in found.out) == (1, True, False)


@pytest.mark.requirement("H2")
def test_a_patch_is_undone_and_made_again_as_a_whole_and_shown_as_a_diff(cli: Cli, work: Path) -> None:
    before = tree(work)
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n*** Move to: new/deep/moved.txt\n@@\n-first\n+second\n"
        "*** Delete File: raw.bin\n*** Add File: new/n.txt\n+n\n*** End Patch\n"
    )
    session = run(cli, calls("apply_patch", patch=patch), says("Done."))
    after = tree(work)
    assert sorted(after) == ["new", "new/deep", "new/deep/moved.txt", "new/n.txt"]
    shown = cli("show", session, "--diff").out
    assert "--- a/a.txt\n+++ /dev/null" in shown
    assert "--- /dev/null\n+++ b/new/deep/moved.txt" in shown
    assert cli("undo", session, "--json").code == 0
    assert tree(work) == before
    assert cli("undo", session, "--redo", "--json").code == 0
    assert tree(work) == after
    assert cli("undo", session).code == 0
    assert tree(work) == before
    assert cli("fsck").code == 0
    assert cli("replay", session).code == 0
