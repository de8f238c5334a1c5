"""A machine for each test of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge.machine import Machine, make_machine


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of all tests keep compiled modules."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def machine(tmp_path: Path, compiled: Path) -> Machine:
    """An empty home, an empty workspace, no keys."""
    return make_machine(tmp_path, compiled)
