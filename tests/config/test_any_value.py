"""Whatever a file says, each problem has a line of its own with the file and the line, and nothing raises."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.config.keys import KEYS
from holdfast.config.load import load_only
from holdfast.errors import ConfigError
from tests.seeds import many

pytestmark = pytest.mark.requirement("L9")

PIECES = (
    "shell(", "write_file(", "*", "**", "(", ")", "/", "..", ".", "~", "mcp__", "[", "]", "{", "}", "\\", "'", '"',
    "`", "|", "\n", "\0", "\x1b[31m", "\u202e", "\u200b", "é", "https://", "127.0.0.1", ":8080", ":ro", "[::1]",
    "-", "bash", "git push *", "%0a", "@", "*.", "example.com", "before_tool", " ", "\t", "a" * 300, "9" * 400, "exa",
)  # fmt: skip
VALID = (
    "deny",
    "before_tool",
    "shell(git push *)",
    "write_file(docs/**)",
    "mcp__*",
    "example.com",
    ".",
    "12h",
)
NEW_SECTIONS = (
    "policy",
    "network",
    "hooks",
    "tools",
    "repair",
    "taint",
    "notify",
    "catalog",
    "search",
    "conduct",
)

texts = st.lists(st.sampled_from(PIECES), max_size=4).map("".join) | st.sampled_from(VALID)
scalars = texts | st.integers(-(10**40), 10**40) | st.floats() | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=6,
)
keys = st.sampled_from(sorted(KEYS, key=lambda key: key.path.split(".")[0] not in NEW_SECTIONS))


@st.composite
def assignments(draw: st.DrawFn) -> str:
    names = [draw(texts) if each == "*" else each for each in draw(keys).path.split(".")]
    if draw(st.integers(0, 9)) == 0:
        names[-1] = draw(texts)
    return f"{'.'.join(map(toml, names))} = {toml(draw(values))}"


def toml(value: object) -> str:
    match value:
        case str():
            return json.dumps(value.encode(errors="replace").decode())
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{toml(name)} = {toml(each)}' for name, each in value.items())}}}"
        case bool():
            return str(value).lower()
    return str(value)


@settings(max_examples=many(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(assignments(), min_size=1, max_size=5))
def test_no_value_of_any_key_causes_anything_but_a_line_about_it(tmp_path: Path, lines: list[str]) -> None:
    file = tmp_path / "config.toml"
    file.write_text("\n".join(lines))
    try:
        load_only(file)
    except ConfigError as error:
        for line in error.message.splitlines():
            assert re.match(rf"{re.escape(str(file))}(:[1-5])?: ", line), line
            assert line.isprintable()


@pytest.mark.parametrize(
    "name", ['a"b', "a\nconfig.toml:9: all is well", "\x1b[2J", "a\u202eb", "a\\b", "a\u200b"]
)
def test_a_name_in_a_file_cannot_end_its_line_or_hide_a_part_of_it(tmp_path: Path, name: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"[hooks.{json.dumps(name)}]\non = 7\n")
    with pytest.raises(ConfigError) as told:
        load_only(file)
    for line in told.value.message.split("\n"):
        assert line.startswith(f"{file}:")
        assert line.isprintable()
