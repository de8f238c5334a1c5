"""What a person is shown of a call, and what an approval binds to: programs, scripts, files and hosts."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.clock import SystemClock
from holdfast.protocol.settings import changed
from holdfast.protocol.tools import NO_REACH, Allowed, Asked, Reach
from holdfast.tools import reach
from holdfast.tools.reach import content_of
from tests.tools.conftest import Bench

LONG_AGO_S = 1_700_000_000


async def reached(bench: Bench, command: str) -> Reach:
    """What the question about a command shows."""
    bench.settings = changed(bench.settings, autonomy="supervised")
    asked = await bench.admit("shell", command=command)
    assert isinstance(asked, Asked)
    return asked.reach


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.requirement("S6", "H5")
async def test_a_question_about_a_command_names_its_programs_files_and_hosts(bench: Bench) -> None:
    (bench.workspace / "notes.txt").write_text("notes")
    bench.settings = changed(bench.settings, allowed_hosts=("api.example.net:8443",))
    found = await reached(bench, "wc -l notes.txt && curl -s https://api.example.net:8443/v1 | head")
    programs = [str(Path(shutil.which(name) or "").resolve()) for name in ("wc", "curl", "head")]
    assert [each.path for each in found.programs] == [path for path in programs if Path(path).is_file()]
    assert [each.mark for each in found.programs] == [digest(Path(each.path)) for each in found.programs]
    assert found.files == (str(bench.workspace / "notes.txt"),)
    assert found.hosts == ("api.example.net:8443",)


@pytest.mark.requirement("H5")
@pytest.mark.parametrize(
    "command",
    ["sh run.sh", "sh -e run.sh", "env X=1 ./run.sh", "./run.sh", "sh < run.sh", "cd sub && sh ../run.sh"],
)
async def test_the_content_of_a_script_belongs_to_what_is_approved(bench: Bench, command: str) -> None:
    script = bench.workspace / "run.sh"
    script.write_text("echo one\n")
    script.chmod(0o755)
    (bench.workspace / "sub").mkdir()
    before = await reached(bench, command)
    assert digest(script) in [each.mark for each in before.programs]
    script.write_text("echo two\n")
    assert await reached(bench, command) != before


async def test_a_call_that_nobody_has_to_approve_is_not_looked_at(bench: Bench) -> None:
    admitted = await bench.admit("shell", command="ls")
    assert isinstance(admitted, Allowed)
    assert admitted.reach is NO_REACH


@pytest.mark.requirement("H5")
def test_a_content_is_read_again_only_when_the_file_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "program"
    file.write_text("one")
    monkeypatch.setattr(reach, "is_fresh", lambda *_: False)
    first = content_of(str(file))
    hits = reach._mark.cache_info().hits
    assert content_of(str(file)) == first
    assert reach._mark.cache_info().hits == hits + 1
    file.write_text("two")
    os.utime(file, (LONG_AGO_S, LONG_AGO_S))
    assert content_of(str(file)) != first


@pytest.mark.requirement("C12", "H5")
def test_a_content_that_has_just_changed_is_never_taken_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its times may not show the next change."""
    path = tmp_path / "new.sh"
    path.write_text("one")
    soon_ms = path.stat().st_ctime_ns // 1_000_000 + 20
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: soon_ms)
    before = reach._mark.cache_info()
    assert content_of(str(path)) == content_of(str(path))
    assert reach._mark.cache_info() == before


def test_a_file_that_is_too_large_is_compared_by_its_size_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "program"
    file.write_text("four")
    monkeypatch.setattr(reach, "MAX_CONTENT_BYTES", 3)
    first = content_of(str(file))
    assert first is not None
    assert first.mark.startswith("4 bytes, ")
    os.utime(file, (LONG_AGO_S, LONG_AGO_S))
    assert content_of(str(file)) not in (None, first)
    assert content_of(str(tmp_path)) is None
    assert content_of(str(tmp_path / "gone")) is None


def test_reaches_differ_by_each_of_their_parts() -> None:
    plain = Reach()
    for name in Reach.__struct_fields__:
        assert replace(plain, **{name: ("x",)}) != plain
