"""The history of the prompt is private and without secrets, whatever became of its file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from holdfast.cli.pastes import Message, Pasted, typed
from holdfast.cli.recall import HISTORY_FILE, Recall
from holdfast.redact import Redactor
from tests.syncs import record_syncs

SECRET = "sk-ant-" + "api03-" + "Zk3mQ8" * 14


def test_a_history_that_others_could_read_is_closed_with_the_next_message(tmp_path: Path) -> None:
    file = tmp_path / HISTORY_FILE
    file.write_text('["old"]\n')
    file.chmod(0o644)
    Recall(tmp_path, str).add(typed("new"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.text for each in Recall(tmp_path, str).entries()] == ["old", "new"]


def test_a_link_in_place_of_the_history_is_neither_read_nor_written(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text('["not yours"]\n')
    (tmp_path / HISTORY_FILE).symlink_to(other)
    recall = Recall(tmp_path, str)
    assert recall.entries() == []
    recall.add(typed("mine"))
    with pytest.raises(OSError, match="symbolic"):
        recall.forget(["not yours"])
    assert other.read_text() == '["not yours"]\n'


def test_a_secret_that_is_half_typed_and_half_pasted_is_not_kept(tmp_path: Path) -> None:
    redact = Redactor()
    Recall(tmp_path, redact).add(Message(("the key ", SECRET[:9], Pasted(SECRET[9:]))))
    (kept,) = Recall(tmp_path, redact).entries()
    assert kept.text == redact(f"the key {SECRET}") != f"the key {SECRET}"


def test_what_is_forgotten_is_off_the_disk_before_its_session_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = Recall(tmp_path, str)
    for text in ("stays", "goes"):
        recall.add(typed(text))
    syncs = record_syncs(monkeypatch)
    recall.forget(["goes"])
    assert [(sync.path.name, sync.size_bytes) for sync in syncs] == [(HISTORY_FILE, len('["stays"]\n'))]
