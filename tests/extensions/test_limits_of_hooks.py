"""A hook that reaches a limit of its sandbox fails with a reason that names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.extensions.hook_commands import CommandHook, HookFailed
from holdfast.policy.protected import Own
from holdfast.protocol.fence import Finding
from holdfast.protocol.hooks import Occasion
from holdfast.protocol.settings import Walls
from holdfast.sandbox import bubblewrap, landlock
from holdfast.testing.clock import never_over
from holdfast.tools.fencing import enclosed
from tests.extensions.asked import hook

MADE = {"bubblewrap": bubblewrap.make, "landlock": landlock.make}
MANY = "for i in $(seq 40); do (sleep 300 &) ; done; sleep 300"


@pytest.mark.requirement("L11")
@pytest.mark.parametrize("backend", MADE)
@pytest.mark.parametrize(
    ("script", "limit"),
    [
        ("kill -XCPU $$", "[sandbox] cpu"),  # as the kernel does
        ("head -c 1G /dev/zero | tail >&2; exit 1", "[sandbox] memory"),
        ("head -c 2M /dev/zero > big", "[sandbox] file_size"),
        (MANY, "[sandbox] processes"),
    ],
)
async def test_a_hook_is_told_its_limit(tmp_path: Path, backend: str, script: str, limit: str) -> None:
    made = MADE[backend]()
    if isinstance(made, Finding):
        pytest.skip(f"needs {backend}: {made.fault}")
    walls = Walls(made.backend, memory_bytes=1 << 26, file_bytes=1 << 20, processes=16)
    hooks = CommandHook(os.environ, enclosed(made, Own(), walls))
    occasion = Occasion("before_tool", "s", str(tmp_path), f"test-{os.getpid()}:hook")
    try:
        with pytest.raises(HookFailed) as failed:
            await hooks.answer(hook("look", script), occasion, never_over)
    finally:
        await hooks.aclose()
    assert limit in str(failed.value)
