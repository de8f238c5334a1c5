"""Each part of the engine is there without the others, so that it can be tested without them."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys, {module}
print(*sorted({{name.split(".")[1] for name in sys.modules if name.startswith("holdfast.")}}))
"""
VOCABULARY = {"protocol", "errors", "redact"}
PARTS = {
    "holdfast.core.decide": {"core"},
    "holdfast.core.budget": {"core"},
    "holdfast.context.conversation": {"context"},
    "holdfast.policy.rules": {"policy"},
    "holdfast.tools.dispatcher": {
        "tools",
        "policy",
        "sandbox",
        "clock",
        "deadlines",
        "depths",
        "locks",
        "opening",
    },
    "holdfast.storage.sqlite": {"storage", "core", "clock", "opening"},
    "holdfast.providers.native": {"providers", "deadlines"},
    "holdfast.runtime.controller": {"runtime", "core", "context", "prompt"},
    "holdfast.views.story": {"views"},
}
"""What each part brings along beside the vocabulary: neither a session's driver nor another part's effects."""


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("module", PARTS)
def test_a_part_brings_no_other_part_along(module: str) -> None:
    child = [sys.executable, "-I", "-c", LOADED.format(module=module)]
    loaded = set(subprocess.run(child, capture_output=True, text=True, check=True).stdout.split())
    assert loaded - VOCABULARY == PARTS[module]
