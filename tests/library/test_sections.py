"""Sections of the system prompt that a program or a package adds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent
from holdfast.errors import UsageError
from holdfast.extensions.factories import Factories
from holdfast.extensions.found import entry_points
from holdfast.extensions.sections import package_sections
from holdfast.protocol.limits import ModelFacts
from holdfast.protocol.settings import settings_with
from tests.library.test_agent import ADDING, script

SETTINGS = settings_with(ModelFacts("openai", "m"), "/w", autonomy="full")


async def prompt_of(agent: Agent[Any], session: str, which: int = -1) -> tuple[str, list[tuple[str, str]]]:
    """The text of a recorded prompt, and its sections with their sources."""
    built: list[Any] = [
        event.body async for event in agent.session(session).events() if event.type == "PromptBuilt"
    ]
    app = await agent._runtime.app()
    text = (await app.store.blobs.get(built[which].blob)).decode()
    return text, [(each.section, each.source) for each in built[which].sections]


@pytest.mark.requirement("S9")
async def test_sections_of_an_agent_stand_at_the_end_and_are_recorded_with_their_session(
    tmp_path: Path,
) -> None:
    sections = {"team": "Ann reviews.", "house": "No shoes."}
    async with Agent(model=script(tmp_path, ADDING), sections=sections) as agent:
        await agent.run("Go.", "cli:it")
        text, rows = await prompt_of(agent, "cli:it")
    assert text.endswith("\n\nNo shoes.\n\nAnn reviews.")
    assert rows[-2:] == [("house", "agent"), ("team", "agent")]


@pytest.mark.parametrize(
    "sections", [{"Team": "x"}, {"tools": "x"}, {"team": 3}, {3: "x"}, ["team"], {"a": "x" * 100_001}]
)
def test_a_section_has_a_free_name_and_a_text(tmp_path: Path, sections: Any) -> None:
    with pytest.raises(UsageError):
        Agent(model=script(tmp_path, ADDING), sections=sections)


def package(folder: Path, code: str, *rows: str, name: str = "homes") -> list[str]:
    """A package that is installed in a folder of its own."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir()
    lines = [
        "[console_scripts]",
        "x = y:z",
        "",
        "[holdfast.sections]",
        "# ours",
        *rows,
        "",
        "[other]",
        "a = b:c",
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    return [str(folder)]


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder whose packages can be loaded."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "homes", raising=False)
    return tmp_path / "site"


@pytest.mark.requirement("S9")
def test_a_package_adds_a_section_by_an_entry_point(loading: Path) -> None:
    code = "def house(settings): return f'No shoes at {settings.tools.workspace}.'\n"
    path = package(loading, code, "house = homes:house")
    (found,) = package_sections(SETTINGS, path)
    assert (found.name, found.text, found.source) == ("house", "No shoes at /w.", "package homes")
    assert [each.name for each in entry_points("other", path)] == ["a"]
    assert package_sections(SETTINGS, ["/nowhere"]) == ()


@pytest.mark.parametrize(
    ("code", "row"),
    [
        ("def house(settings): return 3\n", "house = homes:house"),
        ("def house(settings): raise ValueError('no')\n", "house = homes:house"),
        ("", "house = homes:house"),
        ("def house(settings): return 'x'\n", "tools = homes:house"),
    ],
)
def test_a_section_of_a_package_that_fails_names_the_package(loading: Path, code: str, row: str) -> None:
    with pytest.raises(UsageError, match="homes"):
        package_sections(SETTINGS, package(loading, code, row))


@pytest.mark.parametrize(
    ("row", "is_left_out"),
    [
        ("house = absent.rooms:house", True),
        ("house = homes:house", False),
        ("house = homes.rooms:house", False),
    ],
)
def test_of_a_package_whose_modules_are_nowhere_a_hint_says_how_it_can_be_developed(
    loading: Path, row: str, is_left_out: bool
) -> None:
    path = package(loading, "import missing_elsewhere", row)
    with pytest.raises(UsageError) as raised:
        package_sections(SETTINGS, path)
    with pytest.raises(UsageError) as named:
        Factories({"tools": {"house": row.partition("= ")[2]}}, path).find("tools", "house")
    assert {("PYTHONPATH" in each.value.hint) for each in (raised, named)} == {is_left_out}


def test_a_package_that_is_installed_later_is_found(loading: Path) -> None:
    path = package(loading, "", name="first")
    assert entry_points("holdfast.sections", path) == ()
    package(loading, "", "house = homes:house")
    assert [each.name for each in entry_points("holdfast.sections", path)] == ["house"]
