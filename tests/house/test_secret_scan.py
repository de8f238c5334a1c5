"""No credential is in the repository: our own redactor reads every tracked file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.redact import make_redactor

NAMES_ONLY = {"password", "secret", "authorization", "url-credentials", "card"}
"""A value in the place of a secret is often harmless, in a test. A text with the shape of a real key is not."""
BINARY = {".png", ".sqlite", ".db", ".gz", ".xz"}


@pytest.mark.requirement("A12")
def test_no_tracked_file_holds_a_credential(repository: Path) -> None:
    git = shutil.which("git")
    if git is None or not (repository / ".git").exists():
        pytest.skip("needs git and a checkout")
    listed = subprocess.run(
        [git, "ls-files", "-z"], cwd=repository, capture_output=True, text=True, timeout=120, check=True
    ).stdout
    redact = make_redactor()
    wrong = []
    for name in filter(None, listed.split("\0")):
        path = repository / name
        if path.suffix in BINARY or not path.is_file():
            continue
        text = path.read_text("utf-8", errors="replace")
        wrong += [
            f"{name}:{text.count(chr(10), 0, span.start) + 1}: {span.kind}"
            for span in redact.find(text)
            if span.kind not in NAMES_ONLY
        ]
    assert wrong == []


@pytest.mark.requirement("A12")
def test_the_scan_would_find_one() -> None:
    planted = "key = 'ghp" + "_" + "a1B2c3D4e5F6" * 3 + "'"
    assert [span.kind for span in make_redactor().find(planted)] == ["github"]
