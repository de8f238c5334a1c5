"""Patches as text: what is read from them, how hunks fit, and what is refused in words."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tools.hunks import applied
from holdfast.tools.patch import MOST_FILES, FilePatch, PatchError, patch_of, paths_in
from tests.seeds import many

LINES = st.lists(
    st.sampled_from(["", "a", "b", "  a", "-- x", "++ y", "@@ z", "c\r", "\\ d", "é"]), max_size=12
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


def diff_of(old: str, new: str, context: int) -> str:
    """A unified diff, with the lines about missing newlines that difflib leaves out."""
    changed = difflib.unified_diff(lines_of(old), lines_of(new), "a/f", "b/f", n=context)
    return "".join(
        f"{line}" if line[-1] == "\n" else f"{line}\n\\ No newline at end of file\n" for line in changed
    )


def lines_of(text: str) -> list[str]:
    """The lines of a text, which only a newline ends."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def only(text: str) -> FilePatch:
    (found,) = patch_of(text)
    return found


def begun(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])


def apply(old: str, patch: str) -> str:
    return applied("f", old, only(patch).hunks)[0]


@given(TEXTS, TEXTS, st.integers(0, 3))
@settings(max_examples=many(150), deadline=None)
def test_a_diff_of_two_texts_makes_the_second_of_the_first(old: str, new: str, context: int) -> None:
    if old != new:
        assert applied("f", old, only(diff_of(old, new, context)).hunks) == (new, ())


@given(st.lists(st.sampled_from([
    "*** Begin Patch", "*** End Patch", "*** Update File: f", "*** Add File: g", "*** Move to: h", "@@", "@@ a",
    "@@ -1,2 +1 @@", "@@ -0,0 +1 @@", "-a", "+b", " a", "", "diff --git a/f b/f", "--- a/f", "+++ b/f",
    "--- /dev/null", "rename from f", "rename to x", "deleted file mode 100644", "\\ No", '--- "a',
    "*** End of File", "x\r",
]), max_size=12), TEXTS)  # fmt: skip
@settings(max_examples=many(200), deadline=None)
def test_no_text_does_more_than_fit_or_be_refused(lines: list[str], old: str) -> None:
    with suppress(PatchError):
        for each in patch_of("\n".join(lines)):
            assert applied("f", old, each.hunks)


def test_git_headers_name_new_deleted_and_moved_files() -> None:
    files = patch_of(
        "From: somebody\n\ndiff --git a/n b/n\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/n\n"
        "@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"
        "diff --git a/empty b/empty\nnew file mode 100644\nindex 0..0\n"
        "diff --git a/d b/d\ndeleted file mode 100644\n--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "diff --git a/old name b/new\nsimilarity index 90%\nrename from old name\nrename to new\n"
        "--- a/old name\t\n+++ b/new\n@@ -1 +1 @@\n-x\n+y\n"
        'diff --git "a/\\303\\244" "b/\\303\\244"\n--- "a/\\303\\244"\n+++ "b/\\303\\244"\n@@ -1 +1 @@\n-x\n+y\n'
        "-- \n2.39\n"
    )
    assert [(each.kind, each.path, each.new_path, each.content) for each in files] == [
        ("add", "n", "", "one\ntwo"),
        ("add", "empty", "", ""),
        ("delete", "d", "", ""),
        ("update", "old name", "new", ""),
        ("update", "ä", "", ""),
    ]
    assert files[0].is_executable


def test_the_other_form_adds_deletes_moves_and_finds_lines_below_an_anchor() -> None:
    text = begun(
        "*** Add File: n", "+one", "+", "*** Delete File: d", "*** Update File: u", "*** Move to: v", "@@ def g():",
        "-    x", "+    y", "@@", " end", "+more", "*** End of File",
    )  # fmt: skip
    added, deleted, moved = patch_of(text)
    assert (added.content, deleted.kind, moved.paths) == ("one\n\n", "delete", ("u", "v"))
    old = "def f():\n    x\ndef g():\n    x\nend\nend\n"
    assert applied("u", old, moved.hunks)[0] == "def f():\n    x\ndef g():\n    y\nend\nend\nmore\n"


def test_line_ends_stay_as_the_file_has_them_and_the_difference_is_told() -> None:
    patch = begun("*** Update File: f", "@@", " a", "-b", "+c", "+d")
    text, notes = applied("f", "a  \r\nb\r\nz\r\n", only(patch).hunks)
    assert text == "a  \r\nc\r\nd\r\nz\r\n"
    assert notes == ("f, hunk 1: spaces or line ends at the end of lines differ.",)
    assert apply("a\nb", patch) == "a\nc\nd"
    assert apply("a\r\nb\r\n", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n") == "a\r\nc\r\n"
    assert apply("a\nb\n", "--- f\r\n+++ f\r\n@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+c\r\n") == "a\nc\n"


def test_what_fits_in_several_places_needs_a_line_number_or_more_lines() -> None:
    old = "x\na\nx\na\nx\n"
    with pytest.raises(PatchError, match=r"f, hunk 1: it fits at several lines \(2, 4\)"):
        apply(old, begun("*** Update File: f", "@@", "-a", "+b"))
    with pytest.raises(PatchError, match="several lines"):
        apply(old, "--- f\n+++ f\n@@ -3 +3 @@\n-a\n+b\n")
    assert apply(old, "--- f\n+++ f\n@@ -4 +4 @@\n-a\n+b\n") == "x\na\nx\nb\nx\n"
    assert apply("z\n\nq\n", "--- f\n+++ f\n@@ -9,7 +9,2 @@\n z\n\n-q\n+r\n") == "z\n\nr\n", "counted wrong"


def problems() -> Iterator[tuple[str, str]]:
    head = "--- a/f\n+++ b/f\n"
    yield "hello", "This is not a patch"
    yield "*** Begin Patch\n*** Add File: a\n+x\n", "does not end"
    yield begun("*** Rename File: a"), "is not `\\*\\*\\* Add File"
    yield begun("*** Add File: a", "x"), "every line begins with `\\+`"
    yield begun("*** Update File: a"), "a: the patch has no hunk"
    yield begun("*** Update File: a", "@@", " x"), "a, hunk 1: it changes nothing"
    yield begun("*** Delete File: a", "*** Delete File: a"), "a is in the patch twice"
    yield begun(*[f"*** Delete File: {n}" for n in range(MOST_FILES + 1)]), "more than 100 files"
    yield begun("*** Update File: a", *["@@ x"] * 9, "-x"), "more than 8 lines after"
    yield f"{head}@@ -1\n-x\n+y\n", "f, hunk 1: its header is"
    yield "@@ -1 +1 @@\n-x\n+y\n", "before the file"
    yield "--- f.orig\n+++ f\n@@ -1 +1 @@\n-x\n+y\n", "names two files"
    yield "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", "does not change permissions"
    yield (
        "diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n",
        "only regular",
    )
    yield "diff --git a/f b/f\nGIT binary patch\n", "only text"
    yield "diff --git a/f b/g\nsimilarity index 9%\ncopy from f\ncopy to g\n", "copy"


@pytest.mark.parametrize(("text", "why"), [*problems()])
def test_what_cannot_be_read_is_refused_with_its_place_and_names_no_path(text: str, why: str) -> None:
    with pytest.raises(PatchError, match=why):
        patch_of(text)
    assert paths_in(text) == ()


def test_lines_that_are_not_there_are_answered_with_the_nearest_one() -> None:
    with pytest.raises(PatchError, match="the nearest line is 2: 'value = 1'"):
        apply("x\nvalue = 1\n", begun("*** Update File: f", "@@", "-value = 2", "+value = 3"))
    with pytest.raises(PatchError, match="no line 'class B'"):
        apply("x\n", begun("*** Update File: f", "@@ class B", "-x", "+y"))
    with pytest.raises(PatchError, match="below line 2"):
        apply("a\nb\n", begun("*** Update File: f", "@@", "-b", "+c", "@@", "-a", "+d"))
