"""A stage on every kind of store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runtime import snapshot
from tests.scenarios.stage import Stage


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short sessions leave snapshots too: what resumes here resumes from one, or from the beginning."""
    monkeypatch.setattr(snapshot, "EVERY_MODEL_CALLS", 2)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory, where there is one: a thousand commits wait for no disk there."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["volatile", "sqlite"])
def stage(request: pytest.FixtureRequest, folder: Path) -> Stage:
    """A stage for each kind of store."""
    return Stage(request.param, folder)


@pytest.fixture
def durable(folder: Path) -> Stage:
    """A stage on disk only."""
    return Stage("sqlite", folder)


@pytest.fixture
def volatile(tmp_path: Path) -> Stage:
    """A stage in memory only."""
    return Stage("volatile", tmp_path)
