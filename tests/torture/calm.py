"""A session that nobody tortured, played once for all processes that run tests: to play one takes seconds."""

from __future__ import annotations

import fcntl
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.torture.evidence import Evidence
from tests.torture.rounds import clear_up


def played_once(factory: pytest.TempPathFactory, name: str, play: Callable[[Path], Evidence]) -> Evidence:
    """What `play(folder)` returns for the first process that asks. It stays for the others, which wait for it."""
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    kept = root / f"{name}.pickle"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            folder = Path(tempfile.mkdtemp(prefix=name, dir=root)) / "round"
            try:
                kept.write_bytes(pickle.dumps(play(folder)))
            finally:
                clear_up(folder)
        return cast(Evidence, pickle.loads(kept.read_bytes()))
