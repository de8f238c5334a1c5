"""A home with journals in it, and a way to run a command on it and see all that it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.cli.root import run
from holdfast.storage.sqlite import SqliteStore
from tests.cli.processes import Cli
from tests.views.journals import Book, a_finished_run, a_waiting_run, write

WHOLE_OUTPUT = b"the whole output " * 10


class Finished(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its JSON, one object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Holdfast = Callable[..., Finished]


class Filled(NamedTuple):
    """A home with a finished and a waiting session."""

    folder: Path
    finished: str
    waiting: str
    book: Book
    """The journal of the finished session."""


@pytest.fixture
def holdfast(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Holdfast:
    """Runs a command in this process, without any key and away from this machine's configuration."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "HOLDFAST_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_ADMIN_CONFIG", str(tmp_path / "no-admin.toml"))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "no-home"))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Finished:
        code = run(arguments)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return call


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command line in processes of its own."""
    return Cli(tmp_path)


@pytest.fixture
def home(tmp_path: Path) -> Filled:
    folder = tmp_path / "home"

    async def fill() -> Filled:
        store = SqliteStore.open(folder)
        blob = await store.blobs.put(WHOLE_OUTPUT)
        finished, book = await write(store, 1, lambda name: a_finished_run(name, blob), "done", "cli:demo")
        waiting, _ = await write(store, 2, a_waiting_run, "waiting")
        await store.aclose()
        return Filled(folder, finished.session, waiting.session, book)

    return asyncio.run(fill())
