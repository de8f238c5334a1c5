"""What others wrote in about seventy formats, scored beside an adapter that does nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol.text_formats import AUTO
from holdfast.providers.text_calls import Reading, TextReader, read_text

pytestmark = pytest.mark.requirement("S3")

FORBIDDEN = "tool_choice_none"
"""These rows expect no call from a whole one, because the request forbade calls, which the row does not say. Holdfast
refuses such calls later: the last pass of a run has no tools.
"""
IDLE = "def parse_tool_calls(text, tools, fmt):\n    return {'calls': [], 'content': text, 'incomplete': False}\n"


@pytest.fixture
def rows(shared: Path) -> list[dict[str, Any]]:
    with (shared / "corpora" / "toolcalls.jsonl").open(encoding="utf-8") as corpus:
        return [json.loads(line) for line in corpus]


def scores(shared: Path, adapter: Path) -> dict[str, tuple[int, int]]:
    """How many rows of each kind are right, without those that a request forbade."""
    scorer = shared / "tools" / "score_corpora.py"
    done = subprocess.run(
        [sys.executable, str(scorer), "--adapter", str(adapter), "--sets", "tool", "--fails", "1000"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, tuple[int, int]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("tool/"):
            right, _, count = line.split()[1].partition("/")
            found[line.split()[0]] = int(right), int(count)
    return found


def right(shared: Path, row: dict[str, Any]) -> bool:
    """Whether the calls of a row are read as its authors read them."""
    sys.path.insert(0, str(shared / "tools"))
    try:
        from score_corpora import same_calls
    finally:
        sys.path.pop(0)
    from tests.providers.text_adapter import parse_tool_calls

    got = parse_tool_calls(row["input"], row.get("tools"), row["format"])["calls"]
    expected = row["expected_calls"]
    return bool(
        not got or same_calls(expected[: len(got)], got) if row.get("lenient") else same_calls(expected, got)
    )


def share(shared: Path, rows: list[dict[str, Any]], tier: str, kind: str) -> float:
    chosen = [
        row for row in rows
        if row["tier"] == tier and row["kind"] == kind and not row.get("contested") and FORBIDDEN not in row["source"]
    ]  # fmt: skip
    assert chosen
    return sum(right(shared, row) for row in chosen) / len(chosen)


def test_calls_are_read_as_the_authors_of_the_formats_read_them(
    shared: Path, rows: list[dict[str, Any]]
) -> None:
    assert share(shared, rows, "core", "call") >= 0.97
    assert share(shared, rows, "longtail", "call") >= 0.9
    for kind in ("no_call", "malformed", "truncated"):
        assert share(shared, rows, "core", kind) == 1.0, kind


def test_reading_is_worth_more_than_doing_nothing(shared: Path, tmp_path: Path) -> None:
    idle = tmp_path / "idle.py"
    idle.write_text(IDLE)
    ours, nothing = scores(shared, Path(__file__).parent / "text_adapter.py"), scores(shared, idle)
    for kind in ("core/declared/call", "longtail/declared/call"):
        assert nothing[f"tool/{kind}"][0] < 5 < 200 < ours[f"tool/{kind}"][0]
    assert ours["tool/core/declared/malformed"] == nothing["tool/core/declared/malformed"]


def pieces(text: str, length: int) -> Iterator[str]:
    return (text[at : at + length] for at in range(0, len(text), length))


def streamed(text: str, format_name: str, length: int) -> Reading:
    reader = TextReader(format_name)
    for piece in pieces(text, length):
        reader.feed(piece)
    return reader.close()


def test_the_corpus_is_read_alike_whole_and_in_pieces(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for name in (row["format"], AUTO):
            whole = read_text(row["input"], name)
            assert all(streamed(row["input"], name, length) == whole for length in (3,)), row["id"]


def test_with_the_format_unknown_no_bare_json_is_a_call(rows: list[dict[str, Any]]) -> None:
    bare = [row for row in rows if row["format"] in ("json", "llama3_json") and "<|" not in row["input"]]
    assert len(bare) > 40
    assert not [row["id"] for row in bare if read_text(row["input"]).calls]
