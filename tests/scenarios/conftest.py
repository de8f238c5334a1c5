"""A stage on every kind of store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.stage import Stage


@pytest.fixture(params=["volatile", "sqlite"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A stage for each kind of store; files lie in memory, so that a thousand commits wait for no disk."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=memory if memory.is_dir() else None))
    yield Stage(request.param, folder)
    shutil.rmtree(folder)


@pytest.fixture
def volatile(tmp_path: Path) -> Stage:
    """A stage in memory only."""
    return Stage("volatile", tmp_path)
