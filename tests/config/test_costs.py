"""Files that are made to take long: their cost grows with their length, not with its square."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.config.load import proposal
from holdfast.config.paths import Home
from holdfast.errors import ConfigError
from tests.growth import grows_in_line

pytestmark = pytest.mark.requirement("L9")

LINES = {
    "hooks": '[hooks.a{n}]\non = ["before_tool"]\ncommand = ["x"]\n',
    "hooks that lack something": "[hooks.a{n}]\ntimeout_s = 3\n",
    "hooks with a wrong value": "[hooks.a{n}]\non = 7\n",
    "values that never count": "[postures.a{n}]\nlimits.turns = 3\n",
    "values that wait for trust": '[catalog."a{n}"]\ncontext_tokens = 9000\n',
    "unknown keys": "policy.x{n} = 1\n",
    "unknown sections": "[x{n}]\ny = 1\n",
    "empty sections": "[hooks.a{n}]\n",
    "empty lines": "\n" * 50,
}
FEW = {"unknown keys": 50, "unknown sections": 50, "hooks": 80}
"""What is looked up for each of these takes longer."""
ITEMS = {
    "rules": 'policy.deny = ["shell(a *)", {items}]\n',
    "wrong rules": 'policy.deny = ["shel(a *)", {items}]\n',
    "hosts": 'network.allow = ["a.example", {items}]\n',
    "paths": 'policy.allowed_paths = ["a", {items}]\n',
    "hidden tools": 'tools.deny = ["a*", {items}]\n',
}
PIECES = ("a ", "**/", "[a", "*", "../", "a.", ":", "(", "\\\\", "{a,", "%", "::")


def read(folder: Path, text: str) -> None:
    (folder / "holdfast.toml").write_text(text)
    home = Home(folder / "home", folder / "home" / "config.toml")
    with suppress(ConfigError):
        proposal(home, folder / "holdfast.toml", {}, machine_file=folder / "none.toml")


@pytest.mark.parametrize("name", LINES)
def test_the_cost_of_a_file_grows_with_its_lines(tmp_path: Path, name: str) -> None:
    def lines(count: int) -> str:
        return "".join(LINES[name].format(n=at) for at in range(count))

    assert grows_in_line(lambda count: read(tmp_path, lines(count)), FEW.get(name, 200))


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", ITEMS)
def test_the_cost_of_a_value_grows_with_its_length(tmp_path: Path, name: str, piece: str) -> None:
    assert grows_in_line(lambda count: read(tmp_path, ITEMS[name].format(items=f'"{piece * count}"')), 4_000)
