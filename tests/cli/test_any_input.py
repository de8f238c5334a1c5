"""Whatever is typed or piped into the commands about calls and secrets, they end with a code and a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Finished, Holdfast

Run = Callable[..., Finished]

PIECES = (
    b"{", b"}", b"[", b"]", b'"', b"\\", b"\n", b"\0", b"\xff", b"\xed\xa0\x80", b'"text"', b":", b",", b"\r",
    b"null", b'{"text": "a"}', b"1e999", b"\\ud800", b"<tool_call>", b"</tool_call>", b'{"name": "x"}', b"```",
    b"<function=x>", b"[TOOL_CALLS]", b"<|python_tag|>", b"\xe2\x80\xae", b"sk-" + b"a" * 40, b"password=",
    b"\xef\xbb\xbf", b"-----BEGIN PRIVATE KEY-----", b"\x1b[31m", b"a" * 3000, b"\xf0\x9f\x98\x80",
    b"9" * 5000, b"[" * 2000,
)  # fmt: skip
NAMES = (
    "name", "text", "tools", "format", "command", "read", "write", "url", "tool", "args", "arguments", "parameters",
    "type", "properties", "required", "id", "function", "description", "input_schema", "path", "patch", "method",
)  # fmt: skip
TOOLS = (
    "shell",
    "read_file",
    "apply_patch",
    "web_fetch",
    "http_request",
    "grep",
    "git_diff",
    "update_plan",
    "none",
)
COMMANDS = ("grants", "grants revoke", "approve", "deny", "trust", "config", "tools")
WORDS = (
    "",
    "x",
    "-",
    "--",
    "last",
    "\udcff",
    "a\nb",
    "..",
    "é",
    "\x1b[1m",
    "-1",
    "9" * 30,
    "s1/1",
    "*",
    "\u202e",
)

raw = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join) | st.binary(max_size=40)
words = st.sampled_from(WORDS) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | raw.map(lambda it: it.decode(errors="replace"))
)
objects = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)
lines = st.lists(objects.map(lambda it: json.dumps(it).encode()) | raw, max_size=4).map(b"\n".join)


@pytest.fixture
def piped(holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command with bytes on its stdin. It ends with a code of the table, and without a bug."""

    def call(arguments: list[str], stdin: bytes = b"") -> Finished:
        (tmp_path / "stdin").write_bytes(stdin)
        with (tmp_path / "stdin").open(encoding="utf-8", errors="surrogateescape") as file:
            monkeypatch.setattr("sys.stdin", file)
            ended = holdfast(*arguments)
        assert ended.code in (0, 1, 2)
        assert "This is a bug" not in ended.err + ended.out
        assert "Traceback" not in ended.err
        assert "\x1b" not in ended.err
        assert ended.err or ended.code != 2
        return ended

    return call


any_input = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@any_input
@given(lines)
def test_no_line_of_a_batch_causes_anything_but_an_answer_in_its_place(piped: Run, stdin: bytes) -> None:
    for command in (["policy", "check"], ["parse-calls"], ["redact"]):
        ended = piped([*command, "--batch", "-", "--json"], stdin)
        assert len(ended.rows) == len(stdin.removesuffix(b"\n").split(b"\n")) * bool(stdin)
        assert ended.code == any("error" in row for row in ended.rows)


@any_input
@given(raw, words, objects | raw)
def test_no_text_with_calls_and_no_list_of_tools_causes_anything_but_an_answer(
    piped: Run, tmp_path: Path, text: bytes, name: str, tools: Any
) -> None:
    (tmp_path / "tools.json").write_bytes(tools if isinstance(tools, bytes) else json.dumps(tools).encode())
    piped(["parse-calls", "--json"], text)
    piped(["parse-calls", "--json", "--format", name], text)
    piped(["parse-calls", "--json", "--tools", "tools.json"], text)
    piped(["redact"], text.decode(errors="replace").encode())


@any_input
@given(st.sampled_from(TOOLS) | words, objects | st.dictionaries(st.sampled_from(NAMES), scalars), words)
def test_no_question_causes_anything_but_a_verdict_or_a_sentence(
    piped: Run, tool: str, arguments: Any, word: str
) -> None:
    ended = piped(["policy", "check", "--tool", tool, "--args", json.dumps(arguments), "--json"])
    assert [row.keys() for row in ended.rows] in (
        [{"verdict", "rule", "reason"}],
        [{"error", "code"}],
    ) or ended.code
    for kind in ("--command", "--read", "--write", "--url"):
        piped(["policy", "check", kind, word, "--json"])


@any_input
@given(st.sampled_from(COMMANDS), st.lists(words, max_size=2))
def test_no_word_after_a_command_causes_anything_but_a_sentence(
    piped: Run, command: str, more: list[str]
) -> None:
    piped([*command.split(), *more])
