"""Importing the library is nearly free; its parts load when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast

CPU_BUDGET_S = 0.15
MEASURED = "import resource, holdfast; r = resource.getrusage(0); print(r.ru_utime + r.ru_stime)"
BARE = "import sys, holdfast; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def printed(code: str) -> str:
    child = [sys.executable, "-I", "-c", code]
    return subprocess.run(child, capture_output=True, text=True, timeout=60, check=True).stdout


def test_importing_costs_less_than_its_cpu_budget() -> None:
    # The least of a few is the cost itself; the rest is what else the machine was doing.
    assert min(float(printed(MEASURED)) for _ in range(5)) < CPU_BUDGET_S


def test_importing_loads_no_heavy_library() -> None:
    heavy = {"aiohttp", "asyncio", "msgspec", "rich", "typer", "jsonschema_rs", "genai_prices", "sqlite3"}
    assert heavy & set(printed(BARE).split()) == set()


@pytest.mark.requirement("S1")
def test_every_public_name_can_be_had() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None, name
    assert dir(holdfast) == sorted(holdfast.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        holdfast.nonsense  # noqa: B018
