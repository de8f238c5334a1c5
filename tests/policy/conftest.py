"""What several tests of the policy share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.policy.reference import Reference


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reference:
    made = Reference(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    return made
