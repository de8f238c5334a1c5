"""Importing the library is nearly free; its parts load when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast

MOST_MODULES = 60
"""How many importing may load; 30 today. `benchmarks.imports` measures the time."""
BARE = "import sys, holdfast; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def printed(code: str) -> str:
    child = [sys.executable, "-I", "-c", code]
    return subprocess.run(child, capture_output=True, text=True, timeout=120, check=True).stdout


def test_importing_loads_few_modules() -> None:
    count = "import sys; before = {*sys.modules}; import holdfast; print(len({*sys.modules} - before))"
    assert int(printed(count)) <= MOST_MODULES


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
