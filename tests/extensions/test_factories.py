"""Providers and tools of installed packages, which the configuration names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge.machine import Machine, call, make_machine
from tests.library.test_sections import package

CODE = '''
from holdfast import tool
from holdfast.providers.script import script_from_lines

@tool(effect="read")
def ticket(number: int) -> str:
    """Read a ticket."""
    return f"ticket {number}"

number = 3

def tools():
    return [ticket]

def model(base_url, api_key):
    text = f"I answer from {base_url} with {len(api_key)} letters."
    return script_from_lines([{"tool_calls": [{"name": "ticket", "arguments": {"number": 7}}]}, {"text": text}], "x")
'''
ROWS = (
    "[holdfast.tools]", "tickets = extras:tools", "one = extras:ticket", "odd = extras:number",
    "[holdfast.providers]", "acme = extras:model",
)  # fmt: skip
CONFIG = """
autonomy = "full"
[sandbox]
mode = "unsafe"
[tools]
packages = ["{name}"]
[providers.acme]
base_url = "http://127.0.0.1:9/v1"
api_key_env = "ACME_KEY"
[catalog."acme:*"]
input_usd_per_mtok = 1
output_usd_per_mtok = 2
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on which a package with tools and a provider is installed."""
    (site,) = package(tmp_path / "site", CODE, *ROWS, name="extras")
    plain = make_machine(tmp_path)
    return Machine(plain.folder, {**plain.environ, "PYTHONPATH": site, "ACME_KEY": "abcdef"})


@pytest.mark.requirement("C18")
@pytest.mark.parametrize("name", ["tickets", "one"])
def test_tools_and_providers_of_a_package_are_made_by_the_names_in_the_configuration(
    machine: Machine, name: str
) -> None:
    machine.configure(CONFIG.format(name=name))
    done = machine.holdfast("run", "Go.", "-m", "acme:big")
    assert (done.code, done.out.strip()) == (0, "I answer from http://127.0.0.1:9/v1 with 6 letters.")
    (finished,) = [each for each in machine.events("last") if each["type"] == "ToolCallFinished"]
    assert finished["body"]["result"]["text"] == "ticket 7"
    assert "ticket" in machine.holdfast("tools").out


@pytest.mark.requirement("S5")
def test_a_tool_of_a_package_is_judged_and_chosen_like_any_other(machine: Machine) -> None:
    machine.configure(CONFIG.format(name="one"))
    asked = ("policy", "check", "--tool", "ticket", "--args", '{"number": 7}', "--json")
    assert machine.holdfast(*asked).json["verdict"] == "allow"
    machine.holdfast("run", "Go.", "-m", "acme:big", "--deny-tool", "tick*")
    assert [each["type"] for each in machine.events("last")].count("ToolCallRefused") == 1
    unknown = machine.holdfast("run", "Go.", "-m", "acme:big", "--deny-tool", "tikcet")
    assert (unknown.code, "Did you mean ticket?" in unknown.err) == (2, True)


@pytest.mark.requirement("C18", "C3")
def test_an_unknown_name_is_an_error_with_the_nearest_one(machine: Machine) -> None:
    machine.configure(CONFIG.format(name="tikets"))
    wrong = machine.holdfast("run", "Go.", "-m", "acme:big")
    assert wrong.code == 2
    assert "config.toml:6: tools.packages: there is no tool 'tikets'. Did you mean tickets?" in wrong.err
    machine.configure(CONFIG.format(name="odd"))
    odd = machine.holdfast("run", "Go.", "-m", "acme:big")
    assert (odd.code, "odd has no tools" in odd.err) == (2, True)
    machine.configure(CONFIG.format(name="one"))
    unknown = machine.holdfast("run", "Go.", "-m", "acmee:big")
    assert unknown.code == 2
    assert "There is no provider 'acmee'. Did you mean acme?" in unknown.err


@pytest.mark.requirement("C18")
def test_without_its_name_in_the_configuration_a_package_adds_no_tool(machine: Machine) -> None:
    assert "ticket" not in machine.holdfast("tools").out
    model = machine.script([{"tool_calls": [call("ticket", number=1)]}, {"text": "Done."}])
    machine.holdfast("run", "Go.", "-m", model)
    assert [each["type"] for each in machine.events("last")].count("ToolCallRefused") == 1
