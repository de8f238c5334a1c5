"""Files that are made to take long: twice the length costs at most 2.5 times as much."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.config.load import proposal
from holdfast.config.paths import Home
from holdfast.errors import ConfigError

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
FEW = {"unknown keys": 300, "unknown sections": 300, "hooks": 500}
"""What is looked up for each of these takes longer."""
ITEMS = {
    "rules": 'policy.deny = ["shell(a *)", {items}]\n',
    "wrong rules": 'policy.deny = ["shel(a *)", {items}]\n',
    "hosts": 'network.allow = ["a.example", {items}]\n',
    "paths": 'policy.allowed_paths = ["a", {items}]\n',
    "hidden tools": 'tools.deny = ["a*", {items}]\n',
}
PIECES = ("a ", "**/", "[a", "*", "../", "a.", ":", "(", "\\\\", "{a,", "%", "::")


def cost_s(folder: Path, text: str) -> float:
    (folder / "holdfast.toml").write_text(text)
    home = Home(folder / "home", folder / "home" / "config.toml")
    began = time.process_time()
    with suppress(ConfigError):
        proposal(home, folder / "holdfast.toml", {}, machine_file=folder / "none.toml")
    return time.process_time() - began


def grows(folder: Path, make: Callable[[int], str], count: int) -> float:
    """How much more twice the length costs: the least that was seen, as others work on the machine too."""
    once = twice = 1e9
    for _ in range(24):
        once, twice = min(once, cost_s(folder, make(count))), min(twice, cost_s(folder, make(2 * count)))
        if twice <= 2.5 * max(once, 0.002):
            break
    return twice / max(once, 0.002)


@pytest.mark.parametrize("name", LINES)
def test_twice_the_lines_of_a_file_cost_about_twice_as_much(tmp_path: Path, name: str) -> None:
    assert (
        grows(tmp_path, lambda n: "".join(LINES[name].format(n=at) for at in range(n)), FEW.get(name, 2_500))
        <= 2.5
    )


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", ITEMS)
def test_twice_the_length_of_a_value_costs_about_twice_as_much(tmp_path: Path, name: str, piece: str) -> None:
    assert grows(tmp_path, lambda n: ITEMS[name].format(items=f'"{piece * n}"'), 20_000) <= 2.5
