"""The commands and flags that scripts rely on: each is in the help of its command and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast

ROOT = Path(__file__).parents[2]
RUN = (
    "--model", "--workspace", "--budget", "--max-turns", "--max-tokens", "--timeout", "--idle-timeout", "--autonomy",
    "--posture", "--system", "--allow-tool", "--deny-tool", "--approve-by", "--output-schema", "--json",
    "--stream-json", "--quiet", "--verbose",
)  # fmt: skip
PINNED = {
    "demo": ("--json",),
    "run": (*RUN, "--session"),
    "resume": RUN,
    "chat": ("--session", "--model", "--workspace", "--budget", "--autonomy"),
    "init": ("--model", "--free"),
    "models": ("--all", "--json"),
    "sessions": ("--status", "--grep", "--limit", "--before", "--since", "--workspace", "--json"),
    "show": ("--events", "--requests", "--request", "--tools", "--timeline", "--cost", "--json"),
    "fork": ("--at",),
    "replay": ("--json",),
    "fsck": ("--repair", "--json"),
    "trust": ("--yes", "--json"),
    "approvals": ("--json",),
    "approve": ("--always", "--note"),
    "deny": ("--note",),
    "grants": ("--json",),
    "parse-calls": ("--format", "--tools", "--batch", "--json"),
    "redact": ("--batch", "--json"),
    "tools": ("--json",),
    "doctor": ("--json",),
    "diff": ("--json",),
    "export": (),
    "import": ("--json",),
    "delete": ("--yes", "--json"),
    "pause": (),
    "stop": (),
    "config": (),
}
"""The flags of each command. A command of SURFACES whose feature is not built yet is not here."""


def pages() -> str:
    """The documentation that people read."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return "\n".join(file.read_text() for file in files if file.name != "requirements.md")


@pytest.mark.parametrize("command", PINNED)
def test_the_help_of_a_command_has_its_pinned_flags_and_an_example(holdfast: Holdfast, command: str) -> None:
    shown = holdfast(command, "--help").out
    listed = re.findall(r"(?<![\w-])--[a-z-]+", shown.partition("Options:")[2])
    assert not [flag for flag in PINNED[command] if flag not in listed]
    assert f"  holdfast {command}" in shown.partition("Options:")[0]


@pytest.mark.parametrize("command", ["show", "path", "schema", "check"])
def test_the_help_of_a_command_about_the_configuration_has_an_example(
    holdfast: Holdfast, command: str
) -> None:
    shown = holdfast("config", command, "--help").out.partition("Options:")[0]
    assert f"\n  holdfast config {command}" in shown


def test_the_help_of_a_policy_check_has_its_pinned_flags_and_an_example(holdfast: Holdfast) -> None:
    shown = holdfast("policy", "check", "--help").out
    flags = (
        "--tool",
        "--args",
        "--command",
        "--read",
        "--write",
        "--url",
        "--batch",
        "--workspace",
        "--json",
    )
    assert not [flag for flag in flags if f"{flag} " not in shown.partition("Options:")[2]]
    assert "\n  holdfast policy check" in shown.partition("Options:")[0]
    assert "holdfast policy check" in pages()


@pytest.mark.parametrize("command", PINNED)
def test_the_documentation_names_every_pinned_command_and_flag(command: str) -> None:
    text = pages()
    assert f"holdfast {command}" in text
    missing = [flag for flag in PINNED[command] if not re.search(rf"{flag}(?![\w-])", text)]
    assert not missing, f"no page names these flags of {command}"
