"""Importing the library is nearly free; its parts load when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast

CPU_BUDGET_S = 0.15
BARE_S = 0.012
"""What a bare interpreter takes on the machine that the budget is meant for; a slower one has more."""
MEASURED = "import resource{}; r = resource.getrusage(0); print(r.ru_utime + r.ru_stime)"
BARE = "import sys, holdfast; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def printed(code: str) -> str:
    child = [sys.executable, "-I", "-c", code]
    return subprocess.run(child, capture_output=True, text=True, timeout=120, check=True).stdout


def cost_s(imports: str) -> float:
    """The least of a few is the cost itself; the rest is what else the machine was doing."""
    return min(float(printed(MEASURED.format(imports))) for _ in range(5))


def test_importing_costs_less_than_its_cpu_budget() -> None:
    assert cost_s(", holdfast") < CPU_BUDGET_S * max(1, cost_s("") / BARE_S)


def test_importing_loads_no_heavy_library() -> None:
    heavy = {"aiohttp", "asyncio", "msgspec", "rich", "typer", "jsonschema_rs", "genai_prices", "sqlite3"}
    assert heavy & set(printed(BARE).split()) == set()


def test_a_page_of_help_loads_no_storage_and_no_cipher() -> None:
    loaded = set(printed(BARE.replace("import sys, holdfast", "import sys, holdfast.cli.root")).split())
    assert {"sqlite3", "cryptography", "keyring", "aiohttp"} & loaded == set()
    assert "typer" in loaded


@pytest.mark.requirement("S1")
def test_every_public_name_can_be_had() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None, name
    assert dir(holdfast) == sorted(holdfast.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        holdfast.nonsense  # noqa: B018
