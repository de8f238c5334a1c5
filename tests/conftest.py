"""What every test shares: the requirement marks are checked, and the project's neighbours are found."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.edge.machine import Machine, make_machine
from tests.house.requirements import is_known, load_rows
from tests.seeds import many

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


# How long an example takes says something about the machine, and nothing about the code.
settings.register_profile(
    "any machine", deadline=None, max_examples=many(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure() -> None:
    """The parent of the tests may ignore signals (nohup, a shell's background). Handle them here, without effect, so
    that commands under test start with them as at a terminal."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    gc.disable()  # while tests are collected, which leaves nothing to be found


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """A worker says of a test only what it came to. That a test begins, and was set up and taken down well, nobody
    shows, and to send and hear all of it takes a millisecond for each test."""
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = partial(_tell, plugin.sendevent)


def _tell(send: Callable[..., None], name: str, **what: Any) -> None:
    report = what.get("data", {}) if name == "testreport" else {}
    is_usual = report.get("outcome") == "passed" and report.get("when") != "call"
    if not is_usual and name not in ("logstart", "logfinish"):
        send(name, **what)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = load_rows()
    for item in items:
        for mark in item.iter_markers("requirement"):
            unknown = [row for row in mark.args if not is_known(row, known)]
            if unknown or not mark.args:
                raise pytest.UsageError(f"{item.nodeid} names no known rows: {unknown}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Do not trace what plays a great many histories: it would take five times as long."""
    traced = sys.gettrace()
    if traced is None or pyfuncitem.get_closest_marker("untraced") is None:
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(traced)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was collected stays until the end: no look for garbage need go through it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture
async def skip_ahead(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock of the test's event loop: timers whose time has come then ring. What runs outside of it
    (processes, threads, servers) is waited for before, by what it says."""
    loop = asyncio.get_running_loop()
    real, skipped_s = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real() + sum(skipped_s))
    return skipped_s.append


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An empty home, an empty workspace, no keys."""
    return make_machine(tmp_path)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of corpora and tools beside the checkout; the test is skipped where it is missing."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared, which is not here")
    return SHARED
