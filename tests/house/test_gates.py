"""The page about security names every gate in its order, with what it stops and what it does not."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.policy import rules
from holdfast.tools.gates import gates_of
from holdfast.tools.hooked import with_hooks
from holdfast.tools.own import OwnPlaces

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
NAMED = {
    "tool_globs": "tool",
    "hidden_characters": "hidden",
    "hard_floor": "hard-floor",
    "own_places": "own",
    "secret_paths": "secret-path",
    "inside_workspace": "workspace",
    "allowed_places": "allowed-path",
    "egress": "url",
    "steering_files": "steering:NAME",
    "hook_programs": "hook-program",
    "outside_files": "outside",
    "listed_rules": "deny:RULE",
    "never": "program",
    "unread_commands": "unread",
    "autonomy": "autonomy:LEVEL",
}
"""The name under which a decision of each rule is told."""


def tables() -> list[list[list[str]]]:
    """The tables of the chapter about gates, each as rows of cells."""
    chapter = PAGE.read_text().partition("## The gates")[2].partition("\n## ")[0]
    found = re.findall(r"(?:^\|.*\n)+", chapter, re.MULTILINE)
    return [[[*map(str.strip, line.split("|")[1:-1])] for line in table.splitlines()[2:]] for table in found]


def first_name(row: list[str]) -> str:
    return row[0].partition("`")[2].partition("`")[0]


def test_the_page_names_every_gate_and_every_rule_in_its_order() -> None:
    gates, of_policy = tables()
    made = with_hooks(gates_of(lambda _: "", OwnPlaces()), None)
    assert [first_name(row) for row in gates] == [gate.name for gate in made]
    assert [first_name(row) for row in of_policy] == [NAMED[rule.__name__] for rule in rules.RULES]


def test_each_of_them_is_told_with_what_it_stops_and_what_it_does_not() -> None:
    for table in tables():
        assert [row for row in table if len(row) != 3 or not all(row)] == []
