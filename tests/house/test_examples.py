"""The examples in README and docs are run, block after block of a page, against a model server on loopback."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import types
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.model_server import ModelServer, Reply

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANSWER = '[{"title": "It adds wrongly", "severity": "low"}]'
ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "```python" in page.read_text()
]


def run(page: Path, folder: Path) -> types.ModuleType:
    """Run the blocks of a page as one program, and then its tests."""
    module = types.ModuleType(f"examples_of_{page.stem}")
    sys.modules[module.__name__] = module
    with asyncio.Runner() as runner:
        for found in _BLOCK.finditer(page.read_text()):
            before = page.read_text()[: found.start(1)].count("\n")
            code = compile("\n" * before + found[1], str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(eval(code, vars(module)))
            else:
                exec(code, vars(module))
    for name, value in list(vars(module).items()):
        if name.startswith("test_"):
            value(folder)
    return module


@pytest.mark.requirement("S1", "S14")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    async with ModelServer([Reply(text=_ANSWER, repeat=True)]) as server:
        for name, url in (("OPENAI", server.openai_url), ("ANTHROPIC", server.url)):
            monkeypatch.setenv(f"{name}_BASE_URL", url)
            monkeypatch.setenv(f"{name}_API_KEY", "none-" + "needed")
        module = await asyncio.to_thread(run, page, tmp_path)
    del sys.modules[module.__name__]


def test_the_pages_with_examples_are_found() -> None:
    assert {page.stem for page in PAGES} >= {"README", "library", "testing"}


def test_the_public_names_are_documented_and_promised() -> None:
    reference, stability = ((ROOT / "docs" / name).read_text() for name in ("reference.md", "stability.md"))
    for name in holdfast.__all__:
        assert f"`{name}`" in stability, name
        assert name == "__version__" or f"\n::: holdfast.{name}\n" in reference, name
        assert hasattr(holdfast, name)
    named = set(re.findall(r"^::: holdfast\.(\w+)$", reference, re.MULTILINE))
    assert named == set(holdfast.__all__) - {"__version__"}


def test_every_public_name_and_method_says_what_it_is() -> None:
    for name in set(holdfast.__all__) - {"__version__"}:
        value = getattr(holdfast, name)
        assert value.__doc__, name
        for method, member in vars(value).items() if isinstance(value, type) else ():
            if not method.startswith("_") and inspect.isfunction(member):
                assert member.__doc__, f"{name}.{method}"
