"""Files that somebody names: read whole, up to a bound, and only where they are files."""

from __future__ import annotations

import os
import socket
from io import BytesIO
from pathlib import Path

import pytest

from holdfast.config.files import Missing, Unreadable, read_file, read_opened, read_stream, read_text


def test_a_file_is_read_up_to_the_bound_and_not_beyond_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_file(file, 5) == b"12345"
    with pytest.raises(Unreadable, match="is larger than 4 bytes"):
        read_file(file, 4)
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(Unreadable, match="is larger than"):
        read_file(file, 1_000)


@pytest.mark.requirement("L9")
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe, door, link = tmp_path / "pipe", tmp_path / "door", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(door))
        for path in (Path("/dev/zero"), Path("/dev/stdin"), pipe, door, link, tmp_path):
            with pytest.raises(Unreadable, match="not a file"):
                read_file(path, 10)


@pytest.mark.parametrize(
    "error", [ValueError("mine"), FileNotFoundError("mine"), BrokenPipeError(32, "mine")]
)
def test_what_goes_wrong_beside_the_reading_is_not_said_of_the_file(tmp_path: Path, error: Exception) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    with pytest.raises(type(error), match="mine"), read_opened(file):
        raise error


def test_a_file_whose_size_the_system_does_not_know_is_read_all_the_same() -> None:
    assert b"Pid:" in read_file(Path("/proc/self/status"), 100_000)
    with pytest.raises(Unreadable, match="is larger than 4 bytes"):
        read_file(Path("/proc/self/status"), 4)


@pytest.mark.parametrize("name", ["nothing", "file/below", "zero\0byte"])
def test_what_is_not_there_is_told_apart(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Missing):
        read_file(tmp_path / name, 10)


def test_text_is_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("grün")
    assert read_text(file, 10) == "grün"
    file.write_bytes(b"\xff")
    with pytest.raises(Unreadable, match="is not UTF-8 text"):
        read_text(file, 10)


def test_a_stream_is_read_to_its_end_or_to_the_bound() -> None:
    assert read_stream(BytesIO(b"12345"), 5) == b"12345"
    with pytest.raises(Unreadable, match="is larger than 4 bytes"):
        read_stream(BytesIO(b"12345"), 4)
