"""What deletes files that the text names one by one runs; what deletes recursively or by pattern asks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.policy.commands import parsed
from tests.policy.reference import Reference

pytestmark = pytest.mark.requirement("C12")

NAMED = [
    "rm b1.py",
    "rm b1.py b2.py",
    "rm -f b{1,2}.py",
    "rm {b1,b2}.py",
    "rm b{1,{2,3}}.py",
    "x=b1.py; rm $x",
    "x=b1; rm $x.py ${x}",
    "x='b1.py b2.py'; rm $x",
    "for f in b1.py b2.py; do rm $f; done",
    "for f in b{1,2}; do rm $f.py; done",
    "rm 'b*.py'",
    "rm b\\*.py",
    "rm 'b{1..2}.py'",
    "unlink b1.py",
]
"""The text spells out each file."""
BY_PATTERN = [
    "rm *.py",
    "rm b?.py",
    "rm b[12].py",
    "rm b{1,*}.py",
    "rm b{1..2}.py",
    "rm {b1..b2,b{1..2}}.py",
    "rm b{1..2}{.py,}",
    "x='*.py'; rm $x",
    "for f in *.py; do rm $f; done",
    'for f in *.py; do rm "$f"; done',
    "for f in b{1..2}.py; do rm $f; done",
    'for f in b{1..2}; do rm "$f.py"; done',
    "for f in 'b 'b{1..2}.py; do rm $f; done",
    "rm $x",
    "rm $(ls)",
    "ls | xargs rm",
    "find . -name 'b*' -exec rm {} +",
    "find . -name 'b*' -delete",
    "rm -r b1.py",
    "rm -rf src{1,2}",
    "rm -r src{1..2}",
]


@pytest.fixture
def many(reference: Reference) -> Reference:
    for name in ("b", "b1", "b2", "b3", "b1.py", "b2.py", "b3.py", "b12.py", "b*.py", "b{1..2}.py", "c.py"):
        (reference.workspace / name).write_text("words\n")
    return reference


@pytest.mark.parametrize("text", NAMED)
async def test_deleting_what_the_text_names_runs(many: Reference, text: str) -> None:
    assert (await many.verdict("command", text)).rule == "proved"


@pytest.mark.parametrize("text", BY_PATTERN)
async def test_deleting_recursively_or_by_pattern_asks(many: Reference, text: str) -> None:
    assert (await many.verdict("command", text)).verdict == "ask"


def test_bash_deletes_nothing_else_than_what_the_text_names(many: Reference) -> None:
    folder = many.workspace
    for text in NAMED:
        before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        words = ["bash", "-c", text]
        subprocess.run(words, cwd=folder, capture_output=True, timeout=20, check=False, env=dict(os.environ))
        gone = {path.name for path in before if not path.exists()}
        used = (use for step in parsed(text).simple for use in step.uses.files)
        assert gone <= {use.word.text for use in used if use.access == "write"}, text
        assert gone, text
        for path, content in before.items():
            Path(path).write_bytes(content)
