"""What counts as kept is on the disk: its content first, then its name, then the folder that holds the name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from holdfast.storage.blobs import blob_path, write_blob
from holdfast.storage.home import MARKER, open_database
from tests.syncs import record_syncs

FULL = 2
SHA256 = "ab" * 32


@pytest.mark.requirement("L7", "H1")
def test_every_commit_waits_for_the_disk(tmp_path: Path) -> None:
    for _ in range(2):  # a home that is made, and one that is there
        with closing(open_database(tmp_path / "home", 1.0)) as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (FULL,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.requirement("L7", "H1")
def test_a_blob_is_synced_before_it_takes_its_name_and_its_folder_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "blobs"
    path = blob_path(root, SHA256)
    syncs = record_syncs(monkeypatch)
    write_blob(root, SHA256, b"content")
    *folders, content, name = syncs
    made = [root, path.parent.parent, path.parent]
    assert [(sync.path, folder.name in sync.names) for sync, folder in zip(folders, made, strict=True)] == [
        (folder.parent, True) for folder in made
    ]
    assert (content.path.parent, content.size_bytes) == (path.parent, len(b"content"))
    assert path.name not in content.names
    assert (name.path, path.name in name.names) == (path.parent, True)


@pytest.mark.requirement("L7", "H1")
def test_folders_of_blobs_that_another_one_made_are_not_believed_to_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that made them may have died right after that."""
    root = tmp_path / "blobs"
    path = blob_path(root, SHA256)
    path.parent.mkdir(parents=True)
    syncs = record_syncs(monkeypatch)
    write_blob(root, SHA256, b"content")
    assert [sync.path for sync in syncs[:3]] == [tmp_path, root, path.parent.parent]


@pytest.mark.requirement("L7", "H1")
def test_a_blob_that_another_one_wrote_is_not_believed_to_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that wrote it may have died right after the file took its name."""
    root = tmp_path / "blobs"
    write_blob(root, SHA256, b"content")
    syncs = record_syncs(monkeypatch)
    write_blob(root, SHA256, b"content")
    assert [sync.path for sync in syncs] == [blob_path(root, SHA256).parent]


@pytest.mark.requirement("L7")
def test_the_mark_of_a_home_is_synced_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    syncs = record_syncs(monkeypatch)
    open_database(home, 1.0).close()
    *folders, content, name = syncs
    assert [sync.path for sync in folders] == [home, *home.parents]
    assert content.path == home / MARKER
    assert content.size_bytes > 0
    assert (name.path, MARKER in name.names) == (home, True)
