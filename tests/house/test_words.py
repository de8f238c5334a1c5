"""Plain words: the texts use few constructions that are hard to read, and names have one word for one thing."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.house.trees import nodes

GAP = r"(?:\s|#)+"
"""Between two words of a sentence: a line may break there, and the next one may begin a comment."""
HARD = {
    "stands": rf"\bstands\b(?!{GAP}for\b)",
    "is no NOUN": rf"(?<!\b[Tt]here){GAP}(?:is|are){GAP}no{GAP}(?!longer\b|more\b)\w",
    "is told": rf"\b(?:is|are){GAP}told\b",
    "is none": rf"\b(?:is|are){GAP}none\b",
    "whoever": r"\b[Ww]hoever\b",
    "Of ...": r'"""Of\b',
    "any more": rf"\bany{GAP}more\b",
}
MOST = 30
GENERATED = {"docs/requirements.md"}
"""It repeats the requirements, which are written elsewhere."""
TEXTS = (".md", ".py")
RETIRED = {"settle", "settles", "settled", "settling", "hold", "holds", "holding", "standing", "stood"}
"""Words that each named several things. Money is settled or held; everything else has a name of its own."""
LEAST_COMMENTS = 0.05
"""The share of the core's lines that have a comment."""
FOR_TOOLS = ("# type:", "# noqa", "# fmt:")


def texts(repository: Path) -> Iterator[tuple[str, str]]:
    """Every tracked text that people read, with its path."""
    git = shutil.which("git")
    if git is None or not (repository / ".git").exists():
        pytest.skip("needs git and a checkout")
    listed = subprocess.run(
        [git, "ls-files", "-z"], cwd=repository, capture_output=True, text=True, timeout=120, check=True
    ).stdout
    own = Path(__file__).relative_to(repository).as_posix()
    for name in filter(None, listed.split("\0")):
        is_text = name.endswith(TEXTS) or name.startswith("script/")
        if is_text and name not in GENERATED | {own} and (repository / name).is_file():
            yield name, (repository / name).read_text("utf-8")


def hard_words(text: str) -> Iterator[tuple[int, str]]:
    """Every place of a construction, with its line. Python's `is None` is not one."""
    for kind, pattern in HARD.items():
        for match in re.finditer(pattern, text):
            yield text.count("\n", 0, match.end()) + 1, kind


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("A mark stands for it. What stands there.", ["stands"]),
        ("A name that is no id.", ["is no NOUN"]),
        ("The model\n    # is\n    # told so.", ["is told"]),
        ("Files, and those that are none.", ["is none"]),
        ("Whoever asks, and whoever answers.", ["whoever", "whoever"]),
        ('limit = 3\n"""Of a file."""', ["Of ..."]),
        ("Nobody waits any\nmore.", ["any more"]),
        ("If there is no name, x is None. It is no longer kept. The answer is no.", []),
    ],
)
def test_a_hard_construction_is_found_where_it_is_written(text: str, kinds: list[str]) -> None:
    assert [kind for _, kind in hard_words(text)] == kinds


def test_the_texts_use_few_hard_constructions(repository: Path) -> None:
    places = [f"{name}:{line}: {kind}" for name, text in texts(repository) for line, kind in hard_words(text)]
    assert len(places) <= MOST, "\n".join([f"{len(places)} places:", *places])


def comment_lines(path: Path) -> int:
    """How many lines of a file have a comment for readers, not for a tool."""
    with path.open("rb") as file:
        return len(
            {
                token.start[0]
                for token in tokenize.tokenize(file.readline)
                if token.type == tokenize.COMMENT and not token.string.startswith(FOR_TOOLS)
            }
        )


def test_the_core_says_why_in_its_comments(repository: Path) -> None:
    files = sorted((repository / "src" / "holdfast" / "core").glob("*.py"))
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
    comments = sum(map(comment_lines, files))
    assert comments >= LEAST_COMMENTS * lines, f"{comments} of {lines} lines of the core have a comment"


def test_each_decision_has_a_number_of_its_own(repository: Path) -> None:
    _, *paths = sorted((repository / "docs" / "decisions").glob("*.md"))  # the first one is the template
    titles = {path.stem[:4]: path.read_text("utf-8").partition("\n")[0] for path in paths}
    assert len(titles) == len(paths) > 20
    assert all(title.startswith(f"# {number}: ") for number, title in titles.items())


def names_in(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every name that code makes or uses, with its line."""
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name


@functools.cache
def words_of(name: str) -> frozenset[str]:
    """The words of a name, in `snake_case` or `CamelCase`."""
    return frozenset(word.lower() for word in re.findall(r"[A-Za-z][a-z]*", name))


def test_a_retired_word_is_found_in_every_kind_of_name() -> None:
    code = "class Hold:\n    async def _settle(self, standing): self.is_settled = held_usd\n"
    found = [name for _, name in names_in(ast.walk(ast.parse(code))) if words_of(name) & RETIRED]
    assert sorted(found) == ["Hold", "_settle", "is_settled", "standing"]


def test_no_name_has_a_word_that_meant_several_things() -> None:
    places = [
        f"{file}:{line}: {name}"
        for file, node in nodes()
        for line, name in names_in([node])
        if words_of(name) & RETIRED
    ]
    assert not places, "\n".join(places)
