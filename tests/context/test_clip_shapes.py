"""What a clipped text shows of its shape: failures of tests, files of a diff, keys of JSON, columns of a table."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.context.clip import clip
from tests.growth import TIMES, grows_in_line

OUTPUTS = Path(__file__).with_name("outputs")
ROOM = 6_000
MEGABYTE = 1 << 20
NOISE = "2026-03-04 10:11:12 INFO worker[77]: an ordinary line of a log, of which there are very many\n" * 800
"""More than fits, before and after what matters."""


def shown(text: str, room: int = ROOM) -> str:
    """The part of a clipped text between head and tail."""
    clipped = clip(text, room)
    assert len(clipped) <= room
    _, _, rest = clipped.partition(" left out ...]\n")
    return rest


PYTEST = (
    ("test_setup", "RuntimeError: no database"),
    ("test_total", "assert 4 == 3"),
    ("test_text", "AssertionError: assert 'hello\\nworld' == 'he"),
    ("test_count[2]", "AssertionError: the cart has "),
    ("test_raises", "ValueError: a bad value"),
)
FAILURES = {
    **dict.fromkeys(
        ("pytest", "pytest_tb_short", "pytest_tb_line", "pytest_tb_no", "pytest_tb_native"), PYTEST
    ),
    "pytest_color_yes": PYTEST,
    "pytest_show_all": PYTEST,
    "unittest": (
        ("ERROR: test_error (test_unit.Shop.test_error)", "KeyError: 'missing'"),
        ("FAIL: test_each (test_unit.Shop.test_each) (n=2)", "AssertionError: 2 != 1"),
        (
            "FAIL: test_list (test_unit.Shop.test_list)",
            "AssertionError: Lists differ: [1, 2, 3] != [1, 5, 3]",
        ),
        ("FAIL: test_total (test_unit.Shop.test_total)", "AssertionError: 4 != 3"),
        ("UNEXPECTED SUCCESS: test_unexpected", ""),
    ),
    "go": (
        ("TestTotal", "shop_test.go:12: total([1 2]) = 4, want 3"),
        ("TestCart/two_items", "shop_test.go:25: the cart has 2 items, want 1"),
        ("TestIndex", "panic: runtime error: index out of range [5] with length 3"),
        ("example.com/till [build failed]", "./till_test.go:9:2: undefined: Open"),
    ),
    "go_verbose": (
        ("TestTotal", "shop_test.go:12: total([1 2]) = 4, want 3"),
        ("TestCart/two_items", "shop_test.go:25: the cart has 2 items, want 1"),
    ),
    "cargo": (
        ("tests::adds", "assertion `left == right` failed: the total is wrong"),
        ("tests::plain", "assertion failed: total(&[]) == 0"),
        ("tests::parses", "Error: ParseIntError { kind: InvalidDigit }"),
        ("tests::panics", "note: test did not panic as expected"),
    ),
    "cargo_show_output": (
        ("tests::adds", "assertion `left == right` failed: the total is wrong"),
        ("closes", "it is still open"),
    ),
    "jest": (
        ("the shop \u203a adds", "expect(received).toBe(expected) // Object.is equality"),
        ("the shop \u203a compares", "expect(received).toEqual(expected) // deep equality"),
        ("the shop \u203a throws", "a bad value"),
    ),
    "tap_node": (("adds", "4 !== 3"), ("inner", "should loosely deep-equal")),
    "tap_perl": (("adds", "got: '4'"), ("plain", "at t.t line 2.")),
}


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_failure_is_shown_with_its_assertion_in_the_middle_of_a_long_output(
    name: str, end: str
) -> None:
    output = (OUTPUTS / f"{name}.txt").read_text()
    text = f"{NOISE}{output}{NOISE}".replace("\n", end)
    told = shown(text)
    for test, why in FAILURES[name]:
        assert test in told
        assert why in told.partition(test)[2].partition("\n- ")[0]


def test_a_test_that_may_fail_and_what_tests_print_are_no_failures() -> None:
    for name in ("tap_node", "tap_perl", "jest"):
        told = shown(NOISE + (OUTPUTS / f"{name}.txt").read_text() + NOISE)
        assert "todo" not in told
        assert "not yet" not in told
        assert "Console" not in told


@pytest.mark.parametrize(("name", "failures"), [("pytest_show_all", 5), ("cargo_show_output", 2)])
def test_what_passed_tests_print_makes_them_no_failures(name: str, failures: int) -> None:
    output = (OUTPUTS / f"{name}.txt").read_text()
    told = shown(NOISE + output + output + NOISE)
    assert told.partition(": ")[2].startswith(f"{2 * failures} failures]")
    for passed in ("test_fine", "test_known", "count[1]", "tests::fits", "opens"):
        assert f"- {passed}" not in told


def test_failures_that_do_not_fit_are_counted() -> None:
    rule = "_" * 20
    block = rule + " test_{0} " + rule + "\nE   assert {0} == -1\n\ntests/test_x.py:{0}: AssertionError\n"
    text = NOISE + "=== FAILURES ===\n" + "".join(block.format(number) for number in range(2_000)) + NOISE
    told = shown(text)
    listed = told.count("\n- test_")
    assert told.startswith("[pytest: 2,000 failures]\n- test_0\n  E   assert 0 == -1\n")
    assert f"[{2_000 - listed:,} more failures]" in told
    assert listed > 40


def test_a_line_that_a_test_logs_is_not_taken_for_a_failure() -> None:
    output = (
        (OUTPUTS / "pytest.txt").read_text().replace("a captured line", "FAILED to\n___ do it ___\nE   no")
    )
    told = shown(NOISE + output + NOISE)
    assert told.startswith("[pytest: 5 failures]")
    assert "do it" not in told


def test_the_outputs_of_two_runners_are_both_shown() -> None:
    parts = [(OUTPUTS / f"{name}.txt").read_text() for name in ("pytest", "jest")]
    told = shown(NOISE + "\n".join(parts) + NOISE)
    assert told.startswith("[pytest, jest: 8 failures]")


def test_a_text_that_only_looks_like_tests_keeps_head_and_tail() -> None:
    page = "# Notes\n= FAILURES =\nThe line before begins a list of failures.\n" + NOISE
    clipped = clip(page, ROOM)
    assert clipped.startswith("# Notes\n")
    assert len(clipped) > ROOM * 0.8


@pytest.mark.requirement("C7")
def test_the_outline_of_json_shows_keys_types_and_lengths() -> None:
    items = [{"id": number, "name": f"item {number}", "note": "x" * 300} for number in range(2_000)]
    value = {"total": 2_000, "page": {"next": None, "size": 50}, "items": items, "tags": ["a", "b"]}
    for text in (
        json.dumps(value),
        json.dumps(value, indent=2),
        f"warning: slow\n{json.dumps(value)}\n[exit code 1]",
    ):
        told = shown(text)
        assert "[JSON] object with 4 keys\n" in told
        for line in (
            '  "total": 2000\n',
            '  "page": ',
            '"size": 50',
            '  "items": list of 2,000 items\n',
            "    [0] object with 3 keys\n",
            '      "name": "item 0"\n',
            '      "note": text of 300 characters: "xxx',
            "    [1999] object with 3 keys\n",
            '  "tags": ["a",',
        ):
            assert line in told.replace('[ "a"', '["a"')


def test_json_that_is_broken_or_nested_very_deep_is_a_text_like_others() -> None:
    whole = json.dumps([{"id": number} for number in range(20_000)])
    for text in (whole[: len(whole) // 2], "[" * 10_000 + "]" * 10_000 + " " * ROOM, '{"a":' * 10_000):
        assert "[JSON]" not in clip(text, ROOM)


def test_an_object_of_too_many_parts_is_shown_with_its_size() -> None:
    text = "[" + "[]," * 300_000 + "[]]"
    assert f"[JSON] list of {len(text):,} bytes\n" in shown(text)


@pytest.mark.requirement("C7")
def test_a_table_shows_its_header_first_and_last_rows_and_its_size() -> None:
    rows = "".join(f'{number},"a name, with a comma",{number * 2}\n' for number in range(5_000))
    clipped = clip(f"id,name,value\n{rows}", ROOM)
    assert clipped.startswith("id,name,value\n0,")
    assert "[CSV: 5,001 lines, 3 columns; the first line is the header]\nid,name,value\n" in clipped
    assert clipped.endswith('4999,"a name, with a comma",9998\n')


@pytest.mark.parametrize(
    ("head", "row", "told"),
    [
        ("a\tb\tc\n", "1\t2\t3\n", "[TSV: 5,001 lines, 3 columns"),
        ("a;b;c\n", "1;2;3\n", "[CSV: 5,001 lines, 3 columns"),
        ("| name | size |\n|---|---|\n", "| a | 1 |\n", "[table: 5,002 lines, 2 columns"),
        (" name | size \n------+------\n", " a    |    1 \n", "[table: 5,002 lines, 2 columns"),
        ("NAME    READY   STATUS\n", "pod-1   1/1     Running\n", "[table: 5,001 lines, 3 columns"),
        (
            '{"id": 1, "name": "a"}\n',
            '{"id": 1, "name": "a"}\n',
            "[JSON Lines: 5,001 lines; keys of the first one: id, name]",
        ),
    ],
)
def test_other_tables_are_recognised(head: str, row: str, told: str) -> None:
    assert told in clip(head + row * 5_000, ROOM)


def test_rows_that_are_very_wide_are_shown_from_their_beginnings() -> None:
    row = ",".join(f"value {number}" for number in range(2_000))
    told = shown("\n".join([row.replace("value", "column"), *[row] * 30]))
    assert "[CSV: 31 lines, 2,000 columns" in told
    assert "column 0,column 1," in told
    assert f"[{len(row):,} characters]" in told


@pytest.mark.requirement("C7")
def test_a_diff_shows_its_files_and_how_much_they_change(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    git("init", "-q")
    for name in ("kept.py", "gone.py", "old name.py"):
        (tmp_path / name).write_text("".join(f"{name} {number}\n" for number in range(200)))
    (tmp_path / "image.bin").write_bytes(bytes(range(256)))
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "kept.py").write_text("".join(f"another {number}\n" for number in range(150)))
    (tmp_path / "gone.py").unlink()
    (tmp_path / "old name.py").rename(tmp_path / "new name.py")
    (tmp_path / "image.bin").write_bytes(bytes(range(255)))
    (tmp_path / "added.py").write_text("++ a line that begins like a head\n" * 120)
    git("add", ".")
    told = shown(git("diff", "--cached", "-M"))
    assert told.startswith("[diff: 5 files]\n")
    for line in (
        "kept.py: +150 -200\n",
        "gone.py: +0 -200, deleted\n",
        "new name.py: +0 -0, renamed\n",
        "image.bin: +0 -0, binary\n",
        "added.py: +120 -0, new\n",
    ):
        assert line in told


def test_a_diff_without_git_and_one_of_very_many_files_are_recognised() -> None:
    part = "--- old/{0}\t2026-01-01\n+++ new/{0}\t2026-01-02\n@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n"
    told = shown("".join(part.format(number) for number in range(200)))
    assert "new/0: +2 -1\n" in told
    many = "".join(f"diff --git a/f{number} b/f{number}\nnew file mode 100644\n" for number in range(5_000))
    told = shown(many)
    assert told.startswith("[diff: 5,000 files]\nf0: +0 -0, new\n")
    assert " more files]" in told


def test_the_colours_of_a_clipped_text_are_dropped() -> None:
    assert "[31m" not in clip("\x1b[31mred\x1b[0m and some more words\n" * 1_000, ROOM)


def filled(text: str) -> str:
    """A text as long as a megabyte."""
    return (text * (MEGABYTE // len(text) + 1))[:MEGABYTE]


HOSTILE = {
    "one line": "x" * MEGABYTE,
    "newlines": "\n" * MEGABYTE,
    "spaces": " " * MEGABYTE,
    "commas": "," * MEGABYTE,
    "rows of commas": ",\n" * (MEGABYTE // 2),
    "quotes": '"' * MEGABYTE,
    "carriage returns": "\r\n" * (MEGABYTE // 2),
    "colours": "\x1b[31m" * (MEGABYTE // 5),
    "control characters": "\x01a" * (MEGABYTE // 2),
    "brackets": "[" * MEGABYTE,
    "deep JSON": '{"a":' * 10_000 + "1" + "}" * 10_000 + " " * MEGABYTE,
    "deep lists": "[" + ",".join(["[" * 400 + "]" * 400] * 1_300) + "]",
    "lists": "[" + "[]," * (MEGABYTE // 3) + "[]]",
    "numbers": "[" + "1," * (MEGABYTE // 2) + "1]",
    "keys": "{" + ",".join(f'"k{number}":[]' for number in range(MEGABYTE // 12)) + "}",
    "half a JSON": json.dumps([{"id": number, "name": "a"} for number in range(40_000)])[:MEGABYTE],
    "verdicts": filled("not ok 1\n"),
    "verdicts in one line": filled("not ok 1 --- FAIL: "),
    "heads": "= FAILURES =\n" + filled("___ a " + "_" * 5_000),
    "frames": "= FAILURES =\n" + filled("_ a _ " * 1_000 + "\n"),
    "rules": filled("=" * 70 + "\nFAIL: x\n"),
    "files": filled("diff --git \n"),
    "additions": "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n" + "+\n" * (MEGABYTE // 2),
    "installing, then tests": filled("Collecting a\n  Downloading https://example.com/a.whl\n")
    + (OUTPUTS / "pytest.txt").read_text(),
}


@pytest.mark.requirement("C7")
@pytest.mark.parametrize("name", HOSTILE)
def test_any_text_is_clipped_in_time_that_grows_with_its_length_only(name: str) -> None:
    text = HOSTILE[name]

    def work(length: int) -> None:
        assert len(clip(text[:length], 24_000)) <= 24_000

    assert grows_in_line(work, len(text) // TIMES)


@given(st.text(alphabet='ab\n\r\t {}[],:"=_-+E#1.●\x1b', max_size=4_000), st.integers(2_000, 3_000))
def test_any_text_fits_and_is_clipped_the_same_way_again(text: str, room: int) -> None:
    clipped = clip(text, room)
    assert len(clipped) <= room
    assert clip(text, room) == clipped
