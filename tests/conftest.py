"""What every test shares: the requirement marks are checked, and the project's neighbours are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.requirements import is_known, load_rows

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = load_rows()
    for item in items:
        for mark in item.iter_markers("requirement"):
            unknown = [row for row in mark.args if not is_known(row, known)]
            if unknown or not mark.args:
                raise pytest.UsageError(f"{item.nodeid} names no known rows: {unknown}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of corpora and tools beside the checkout; the test is skipped where it is missing."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared, which is not here")
    return SHARED
