"""`holdfast export`, `import` and `delete` on real homes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
from pathlib import Path

import pytest

from holdfast.cli.archive import _new_file
from holdfast.errors import UsageError
from holdfast.protocol.events import MessageReceived
from holdfast.protocol.settings import Posture
from holdfast.runtime import archive
from holdfast.storage import deletion
from holdfast.storage.sqlite import SqliteStore
from holdfast.testing.driving import a_holder, an_id, drive
from tests.cli.conftest import WHOLE_OUTPUT, Filled, Finished, Holdfast
from tests.cli.forging import parts_of
from tests.cli.processes import SLOW, Cli, calls, says
from tests.syncs import record_syncs


def run(holdfast: Holdfast, home: Path, *words: str) -> Finished:
    return holdfast(*words, "--home", str(home))


@pytest.fixture
def exported(holdfast: Holdfast, home: Filled, tmp_path: Path) -> Path:
    """The finished session of the home as a file."""
    file = tmp_path / "session.jsonl"
    assert run(holdfast, home.folder, "export", home.finished, str(file)).code == 0
    return file


# --- export and import


@pytest.mark.requirement("H2")
def test_an_imported_session_is_the_exported_one_record_by_record(
    holdfast: Holdfast, home: Filled, exported: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    answer = run(holdfast, other, "import", str(exported), "--json")
    assert (answer.code, answer.rows) == (0, [{"session": home.finished}])
    for view in (["--request", "2"], ["--tools"], ["--cost"]):
        assert run(holdfast, other, "show", "cli:demo", *view) == run(
            holdfast, home.folder, "show", "cli:demo", *view
        )
    (there,), (here,) = (
        run(holdfast, folder, "show", "cli:demo", "--json").rows for folder in (other, home.folder)
    )
    assert {name for name, value in there.items() if here[name] != value} == {"updated_at", "records"}
    events, theirs = (
        run(holdfast, folder, "show", "cli:demo", "--events", "--json").rows
        for folder in (other, home.folder)
    )
    assert events[: len(theirs)] == theirs
    assert "SessionImported" in [each["type"] for each in events[len(theirs) :]]
    assert run(holdfast, other, "fsck").code == 0
    copy = tmp_path / "copy.jsonl"
    assert run(holdfast, other, "export", home.finished, str(copy)).code == 0
    assert parts_of(copy).stored[: len(theirs)] == parts_of(exported).stored
    assert parts_of(copy).blobs == parts_of(exported).blobs
    assert exported.stat().st_mode & 0o777 == 0o600


@pytest.mark.requirement("H2")
def test_a_session_that_is_here_already_is_not_imported_twice(
    holdfast: Holdfast, home: Filled, exported: Path
) -> None:
    before = run(holdfast, home.folder, "sessions", "--json").out
    for _ in range(2):
        answer = run(holdfast, home.folder, "import", str(exported), "--json")
        assert (answer.code, answer.rows) == (0, [{"session": home.finished}])
    assert run(holdfast, home.folder, "sessions", "--json").out == before


@pytest.mark.requirement("H2")
def test_a_file_is_imported_again_without_a_change_after_its_session_went_on(
    holdfast: Holdfast, exported: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    for _ in range(2):
        assert run(holdfast, other, "import", str(exported)).code == 0
        events = run(holdfast, other, "show", "cli:demo", "--events", "--json").rows
        assert [each["type"] for each in events].count("SessionImported") == 1


@pytest.mark.requirement("H2")
def test_other_records_under_the_same_id_are_left_as_they_are(
    holdfast: Holdfast, home: Filled, exported: Path, tmp_path: Path
) -> None:
    async def write() -> None:
        store = SqliteStore.open(tmp_path / "other")
        driving = await drive(store, 1)
        assert driving.session == home.finished
        await driving.commit(MessageReceived("something else"))
        await store.aclose()

    asyncio.run(write())
    answer = run(holdfast, tmp_path / "other", "import", str(exported), "--json")
    assert (answer.code, answer.out) == (1, "")
    assert "other records" in answer.err
    rows = run(holdfast, tmp_path / "other", "show", home.finished, "--events", "--json").rows
    assert [row["body"]["text"] for row in rows] == ["something else"]


@pytest.mark.requirement("H2")
def test_a_name_that_another_session_has_is_not_taken_from_it(
    holdfast: Holdfast, exported: Path, tmp_path: Path
) -> None:
    async def write() -> None:
        store = SqliteStore.open(tmp_path / "other")
        await store.claim(an_id(9), "cli:demo", 1)
        await store.aclose()

    asyncio.run(write())
    answer = run(holdfast, tmp_path / "other", "import", str(exported))
    assert answer.code == 1
    assert an_id(9) in answer.err
    assert len(run(holdfast, tmp_path / "other", "sessions", "--json").rows) == 1


@pytest.mark.requirement("H2", "H1")
def test_no_changed_line_of_a_file_is_imported(holdfast: Holdfast, exported: Path, tmp_path: Path) -> None:
    lines = exported.read_bytes().splitlines(keepends=True)
    changed: list[bytes] = [b"", b"{}\n", b"".join(lines[:-1]), b"".join(lines) + lines[-1]]
    for at, line in enumerate(lines):
        middle = len(line) // 2
        flipped = line[:middle] + bytes([line[middle] ^ 1]) + line[middle + 1 :]
        changed.append(b"".join([*lines[:at], flipped, *lines[at + 1 :]]))
        changed.append(b"".join(lines[:at] + lines[at + 1 :]))
    other = tmp_path / "other"
    for number, content in enumerate(changed):
        file = tmp_path / "changed.jsonl"
        file.write_bytes(content)
        answer = run(holdfast, other, "import", str(file), "--json")
        assert answer.code == 9, (number, answer)
        assert answer.rows[0]["error"]["code"] == "storage_corrupt", number
    assert run(holdfast, other, "sessions", "--json").rows == []


def test_a_record_of_a_file_that_was_changed_together_with_its_last_line_breaks_the_chain(
    holdfast: Holdfast, exported: Path, tmp_path: Path
) -> None:
    head, *lines, _ = exported.read_bytes().splitlines(keepends=True)
    forged = [line.replace(b"sign was wrong", b"sign was right") for line in lines]
    assert forged != lines
    whole = b"".join([head, *forged])
    end = json.dumps({"kind": "end", "sha256": hashlib.sha256(whole).hexdigest()}).encode() + b"\n"
    exported.write_bytes(whole + end)
    answer = run(holdfast, tmp_path / "other", "import", str(exported))
    assert answer.code == 9
    assert "was changed" in answer.err


@pytest.mark.requirement("H2")
def test_a_session_goes_from_one_home_to_another_through_a_pipe(
    holdfast: Holdfast, home: Filled, exported: Path, cli: Cli, tmp_path: Path
) -> None:
    answer = cli("import", "-", "--home", str(tmp_path / "other"), "--json", stdin=exported.read_text())
    assert (answer.code, answer.json) == (0, {"session": home.finished})
    assert run(holdfast, tmp_path / "other", "fsck").code == 0


@pytest.mark.parametrize("is_json", [True, False])
def test_a_damaged_stream_is_called_stdin(exported: Path, cli: Cli, is_json: bool) -> None:
    flags = ("--json",) if is_json else ()
    answer = cli("import", "-", *flags, stdin=exported.read_text().replace("sign", "sigh"))
    assert answer.code == 9
    assert "stdin is not what was exported" in answer.err
    assert ".jsonl" not in answer.err + answer.out


@pytest.mark.parametrize("content", ["", "{}\n", "not JSON"])
@pytest.mark.parametrize("is_piped", [True, False])
def test_an_import_that_is_refused_leaves_no_new_home(
    cli: Cli, tmp_path: Path, content: str, is_piped: bool
) -> None:
    (tmp_path / "it").write_text(content)
    name = "-" if is_piped else str(tmp_path / "it")
    answer = cli("import", name, "--home", str(tmp_path / "other"), stdin=content)
    assert answer.code == 9
    assert not (tmp_path / "other").exists()


def test_records_that_are_too_large_together_are_not_imported(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posture = Posture("supervised", "wait")
    assert archive.proven(exported, 1, posture).contents.stored
    monkeypatch.setattr(archive, "RECORDS_BYTES", 2_000)
    with pytest.raises(UsageError, match="more than 0 MiB of records"):
        archive.proven(exported, 1, posture)


def test_many_small_records_are_too_large_together_for_what_they_take_in_memory(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posture = Posture("supervised", "wait")
    stored = archive.proven(exported, 1, posture).contents.stored
    monkeypatch.setattr(archive, "RECORDS_BYTES", sum(len(each.body) for each in stored) + 300 * len(stored))
    with pytest.raises(UsageError, match="more than 0 MiB of records"):
        archive.proven(exported, 1, posture)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_only_a_file_is_imported(holdfast: Holdfast, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    answer = run(holdfast, tmp_path / "other", "import", str(path), "--json")
    assert answer.code == 2
    assert not (tmp_path / "other").exists()


def test_a_session_is_exported_to_stdout_or_whole_to_a_file(
    holdfast: Holdfast, home: Filled, exported: Path, cli: Cli, tmp_path: Path
) -> None:
    out = cli("export", "cli:demo", "-", "--home", str(home.folder))
    assert out.out == exported.read_text()
    assert run(holdfast, home.folder, "export", "cli:demo", str(tmp_path)).code == 2
    assert run(holdfast, home.folder, "export", "cli:demo", str(tmp_path / "no" / "file")).code == 2
    assert run(holdfast, home.folder, "export", "nothing", str(tmp_path / "x")).code == 2
    assert not (tmp_path / "x").exists()


def test_an_export_follows_no_link_that_somebody_put_in_its_way(
    holdfast: Holdfast, home: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(secrets, "token_hex", lambda _: "guessed")
    monkeypatch.setattr(os, "getpid", lambda: 7)
    for name in (".holdfast-guessed.draft", ".x.jsonl.7"):
        (shared / name).symlink_to(precious)

    answer = run(holdfast, home.folder, "export", home.finished, str(shared / "x.jsonl"))
    assert answer.code == 2
    assert "File exists" in answer.err
    assert precious.read_text() == "precious"
    assert sorted(path.name for path in shared.iterdir()) == [".holdfast-guessed.draft", ".x.jsonl.7"]


@pytest.mark.requirement("H2", "H5")
def test_a_branch_is_imported_without_its_parent_and_goes_on_there(cli: Cli, tmp_path: Path) -> None:
    model = cli.model(
        calls("shell", command="kill -0 0; echo once >> log.txt"),
        says("Done.", when="no output|denied"),
        says("More."),
    )
    waiting = cli("run", "log it", "-m", model, "--approve-by", "wait", "--json").json["session"]
    events = cli("show", waiting, "--events", "--json").out.splitlines()
    branch = cli("fork", waiting, "--at", str(len(events)), "--json").json["session"]
    assert cli("resume", branch, "--json").code == 5
    for name in (branch, waiting):
        assert cli("export", name, str(tmp_path / f"{name}.jsonl")).code == 0
    there = ("--home", str(tmp_path / "there"))
    for name in (branch, waiting):  # the parent comes later, and asks its own approval
        assert cli("import", str(tmp_path / f"{name}.jsonl"), *there).code == 0
        assert cli("fsck", *there).code == 0
    approvals = [json.loads(line) for line in cli("approvals", "--json", *there).out.splitlines()]
    assert sorted(row["session"] for row in approvals) == sorted([branch, waiting])
    mine = next(row["id"] for row in approvals if row["session"] == branch)
    assert cli("deny", mine, *there).code == 0
    assert cli("resume", branch, "--json", *there).json["text"] == "Done."
    assert cli("replay", branch, *there).code == 0
    assert cli("fsck", *there).code == 0
    assert cli("fsck", "--repair", str(tmp_path / "saved.db"), *there).code == 0
    (tmp_path / "there" / "holdfast.db").unlink()
    (tmp_path / "saved.db").rename(tmp_path / "there" / "holdfast.db")
    assert cli("show", branch, "--json", *there).json["status"] == "done"
    assert cli("fsck", *there).code == 0


# --- delete


def found_in(folder: Path, *words: bytes) -> list[str]:
    """The files of a folder that hold any of the words, and those that cannot be told apart from them."""
    return [
        f"{path.relative_to(folder)}: {word!r}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for word in words
        if word in path.read_bytes() or word.decode() in path.name
    ]


@pytest.mark.requirement("A7")
def test_no_byte_of_a_deleted_session_is_left_in_the_home(cli: Cli) -> None:
    (cli.workspace / "big.txt").write_text("a line of the file\n" * 4_000)
    lines = [
        calls("write_file", path="told.txt", content="the content of told.txt"),
        calls("read_file", path="big.txt", limit=2_000),
        says("a quiet answer"),
    ]
    kept = cli("run", "the kept task", "-m", cli.model(*lines, name="kept"), "-s", "cli:kept", "--json").json
    words = [b"zebra-%d" % number for number in range(6)]
    for number in range(3):
        zebra = [
            calls("write_file", path="zebra-0.txt", content="zebra-1 " * 3_000),
            calls("read_file", path="zebra-0.txt"),
            calls("shell", command="echo zebra-2"),
            says("zebra-3"),
        ]
        session = cli(
            "run", "zebra-4", "-m", cli.model(*zebra, name=f"m{number}"), "-s", f"cli:zebra-5.{number}",
            "--autonomy", "full", "--json",
        ).json["session"]  # fmt: skip
        cli("resume", session, "and zebra-4 again")
        cli("fork", session, "--at", "5")
    home_words = [word for word in words if found_in(cli.home, word)]
    assert home_words == words, "the search finds what is there"
    rows = [json.loads(line) for line in cli("sessions", "--json").out.splitlines()]
    assert rows.pop()["session"] == kept["session"]
    assert len(rows) == 6
    for row in rows:  # the newest first: branches before their parents
        assert cli("delete", row["session"], "--yes").code == 0
    assert found_in(cli.home, *words, *(row["session"].encode() for row in rows)) == []
    assert cli("fsck").code == 0
    assert cli("show", kept["session"], "--json").json["text"] == "a quiet answer"
    assert cli("show", kept["session"], "--tools").code == 0


@pytest.mark.requirement("A7")
def test_no_byte_is_left_while_another_process_has_the_home_open(cli: Cli) -> None:
    session = cli("run", "zebra-4", "-m", cli.model(says("zebra-3")), "--json").json["session"]

    with cli.working("run", "count", "-m", cli.model(SLOW, name="slow")) as working:
        working.until(lambda row: "delta" in row)
        assert found_in(cli.home, b"zebra-3")
        assert cli("delete", session, "--yes").code == 0
        assert (cli.home / "holdfast.db-wal").exists(), "the last process would merge the log at its end"
        assert found_in(cli.home, b"zebra-3", b"zebra-4", session.encode()) == []


@pytest.mark.requirement("A7")
def test_a_deletion_that_was_killed_in_the_middle_is_completed_by_the_same_command(
    holdfast: Holdfast, home: Filled
) -> None:
    async def begin() -> None:
        store = SqliteStore.open(home.folder)
        lease = await store.lease(home.finished, a_holder("b"), 10_000, None)
        await store._writer.do(lambda c: deletion.empty(c, lease, home.folder))
        await store.release(lease)
        await store.aclose()

    asyncio.run(begin())
    told = run(holdfast, home.folder, "fsck", "--json")
    assert (told.code, told.rows[0]["ok"], told.rows[0]["damage"]) == (0, True, [])
    (notice,) = told.rows[0]["notices"]
    assert notice.endswith(f"`holdfast delete {home.finished}` completes it.")
    assert notice in run(holdfast, home.folder, "fsck").out
    assert run(holdfast, home.folder, "delete", home.finished, "--yes").code == 0
    assert run(holdfast, home.folder, "delete", home.finished, "--yes").code == 2
    assert found_in(home.folder, WHOLE_OUTPUT, home.finished.encode(), b"SIGN was wrong") == []


@pytest.mark.requirement("A7")
def test_a_session_that_somebody_drives_is_not_deleted(cli: Cli) -> None:
    with cli.working("run", "count", "-m", cli.model(SLOW), "-s", "cli:busy") as working:
        working.until(lambda row: "delta" in row)
        answer = cli("delete", "cli:busy", "--yes")
        assert answer.code == 1
        assert "drives" in answer.err
    assert cli("delete", "cli:busy", "--yes").code == 0
    assert cli("show", "cli:busy").code == 2


@pytest.mark.requirement("A7")
def test_nobody_deletes_by_accident(holdfast: Holdfast, home: Filled) -> None:
    answer = run(holdfast, home.folder, "delete", home.finished, "--json")
    assert answer.code == 2
    assert "--yes" in answer.rows[0]["error"]["hint"]
    branch = run(holdfast, home.folder, "fork", home.finished, "--at", "3").out.strip()
    answer = run(holdfast, home.folder, "delete", home.finished, "--yes")
    assert answer.code == 1
    assert f"holdfast delete {branch}" in answer.err
    assert len(run(holdfast, home.folder, "sessions", "--json").rows) == 3


@pytest.mark.requirement("A7")
def test_a_deleted_branch_says_where_its_shared_records_are(cli: Cli) -> None:
    session = cli("run", "hello", "-m", cli.model(says("Hi.")), "--json").json["session"]
    branch = cli("fork", session, "--at", "4").out.strip()
    assert f"holdfast delete {session}" in cli("delete", branch, "--yes").err
    assert "holdfast delete" not in cli("delete", session, "--yes").err


@pytest.mark.requirement("A7")
@pytest.mark.parametrize(("key", "is_deleted"), [("n", False), ("y", True)])
def test_a_person_is_asked_before_a_session_is_deleted(cli: Cli, key: str, is_deleted: bool) -> None:
    session = cli("run", "hello", "-m", cli.model(says("Hi.")), "--json").json["session"]
    with cli.terminal("delete", "last") as screen:
        screen.until("y or n: ")
        screen.type(f"{key}\n")
        assert screen.end() == (0 if is_deleted else 1)
    assert cli("show", session).code == (2 if is_deleted else 0)


def test_an_export_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = record_syncs(monkeypatch)
    with _new_file(tmp_path / "session.jsonl") as out:
        out.write(b"content")
    assert [(sync.size_bytes, "session.jsonl" in sync.names) for sync in syncs] == [(7, False)]
    assert (tmp_path / "session.jsonl").read_bytes() == b"content"
