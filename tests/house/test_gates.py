"""The pages name every gate with what it stops and what it does not, and every tool with what it declares."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.app import built_in_specs
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
"""The name that each rule gives its decisions."""

OWN = "that of what it quotes"
TRUST = {
    ("data", "read"): ("private", OWN),
    ("data", "write"): ("data",),
    ("data", "exec"): ("private",),
    ("user", "ask"): ("yours",),
    ("assistant", "tell"): ("the model's",),
    ("untrusted", "network"): ("untrusted",),
}
"""How the page tells the trust of a result, by what the tool declares."""
INTERRUPTED = {
    "rerun": ("runs again", "stays open"),
    "probe": ("the file is looked at", "the files are looked at"),
    "unknown": ("the outcome is unknown", "GET and HEAD run again; the outcome of others is unknown"),
}


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


def test_each_tool_has_a_row_with_what_it_declares_and_what_it_takes() -> None:
    pages = (PAGE.parent / "tools.md").read_text()
    rows = [[*map(str.strip, line.split("|")[1:-1])] for line in pages.splitlines() if line.startswith("| `")]
    said = {first_name(row).partition("(")[0]: row for row in rows if len(row) == 4}
    assert set(said) == {spec.name for spec in built_in_specs()}
    for spec in built_in_specs():
        call, effect, trust, interrupted = said[spec.name]
        takes = [
            name
            for name in re.split(r"[^a-z_]+", call.partition("(")[2])
            if name in spec.parameters["properties"]
        ]
        assert takes == [*spec.parameters["properties"]], call
        assert effect == spec.effect
        assert trust in TRUST[spec.trust, spec.effect], call
        assert interrupted in INTERRUPTED[spec.on_interrupt], call
