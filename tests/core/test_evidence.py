"""What a result shows: its text without what differs each time, and the test counts in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.evidence import READ_CHARS, counts_of_tests, evidence_of, without_varying
from holdfast.protocol.evidence import NOTHING_SHOWN
from tests.growth import TIMES, grows_in_line

SAME = {
    "clock times": ("built at 23:18:00", "built at 07:01:59.123"),
    "dates with times": ("[2026-11-21T23:18:00Z] up", "[2026-11-22 01:02:03,456+01:00] up"),
    "listings": ("-rw-r--r-- 1 a a 5 Nov 22 20:36 x", "-rw-r--r-- 1 a a 5 Nov 22 21:07 x"),
    "seconds since 1970": ("stamp 1763766000", "stamp 1763766999"),
    "nanoseconds since 1970": ("stamp 1763766000123456789", "stamp 1763766999123456789"),
    "durations": ("3 passed in 0.03s", "3 passed in 12.4s"),
    "durations in words": ("took 5 seconds", "took 17 seconds"),
    "the time of a shell": ("real\t0m0.003s", "real\t1m2.500s"),
    "milliseconds": ("up to date in 512ms", "up to date in 9ms"),
    "rates": ("12.5 MB/s", "9 MB/s"),
    "process ids": ("started (pid 4711)", "started (pid 12)"),
    "process ids in a list": ("  PID ELAPSED\n 4711   00:00\nup", "  PID ELAPSED\n   12   00:01\nup"),
    "process ids of ps aux": (
        "ann        4711  0.0  0.1   3892  1932 ?        S    00:31   0:00 grep make",
        "ann          12  0.0  0.1   3900  2140 ?        S    10:02   0:00 grep make",
    ),
    "process ids of ps -ef": (
        "ann   4711  7373  0 00:31 pts/1    00:00:00 make",
        "ann     12  99  0 10:02 pts/1    00:00:00 make",
    ),
    "process ids in logs": ("sshd[4711]: hello", "sshd[12]: hello"),
    "jobs of a shell": ("[1] 4711", "[1] 12"),
    "addresses": ("<object at 0x7f3a52c01a30>", "<object at 0x7f0000001230>"),
    "ports of this machine": ("listening on 127.0.0.1:40123", "listening on 127.0.0.1:33001"),
    "temporary files of Python": ("wrote /tmp/tmpab12cd_e/x", "wrote /tmp/tmpzz99_9xx/x"),
    "temporary files of mktemp": ("wrote /tmp/tmp.Kd83jSk2lQ", "wrote /tmp/tmp.0aB9zQ1xY2"),
    "folders of pytest": ("in /tmp/pytest-of-a/pytest-12/x", "in /tmp/pytest-of-a/pytest-13/x"),
    "unique ids": ("id 6f1c2a3b-1234-4abc-8def-0123456789ab", "id 00000000-1234-4abc-8def-0123456789ab"),
}
OTHER = {
    "counts": ("3 of 60 done", "4 of 60 done"),
    "percents": ("40 %", "41 %"),
    "line numbers": ("a.py:10:22: E501", "a.py:11:22: E501"),
    "columns that look like a time": ("a.py:10:22: E501", "a.py:10:23: E501"),
    "versions": ("version 1.2.3", "version 1.2.4"),
    "sizes": ("5120 x", "5121 x"),
    "numbers with words": ("5 servers", "6 servers"),
    "names": ("tmp_a", "tmp_b"),
    "another process": (
        "ann    4711  0.0  0.1   3892  1932 ?        S    00:31   0:00 cc a.c",
        "ann    4711  0.0  0.1   3892  1932 ?        S    00:31   0:00 cc b.c",
    ),
    "the work of a process": ("PID %CPU\n4711 0.1", "PID %CPU\n4711 0.2"),
    "numbers below a list of processes": ("PID TTY\n1 ?\n\n12 files", "PID TTY\n1 ?\n\n13 files"),
    "dates": ("due 2026-11-21", "due 2026-11-22"),
}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("texts", SAME.values(), ids=SAME.keys())
def test_results_that_differ_only_in_what_differs_each_time_show_the_same(texts: tuple[str, str]) -> None:
    one, two = texts
    assert one != two
    assert without_varying(one) == without_varying(two) != one


@pytest.mark.requirement("C4")
@pytest.mark.parametrize("texts", OTHER.values(), ids=OTHER.keys())
def test_results_that_differ_in_what_they_say_show_something_else(texts: tuple[str, str]) -> None:
    one, two = texts
    assert without_varying(one) != without_varying(two)


def shown(text: str, status: str = "ok", arguments: str = "{}", *, is_negative: bool = False) -> object:
    return evidence_of(text, status, is_negative=is_negative, ran=True, arguments=arguments)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("a.txt does not exist.", '{"path":"a.txt"}'), ("b/c.txt does not exist.", '{"path":"b/c.txt"}')),
        (("`old` is not in x: 'aaa'", '{"old":"?"}'), ("`old` is not in x: 'bb b'", '{"old":"!"}')),
        (('KeyError: "one"', "{}"), ('KeyError: "two"', "{}")),
        (("failed after 3 s", "not JSON"), ("failed after 4 s", "[1]")),
    ],
    ids=["arguments", "single quotes", "double quotes", "times"],
)
def test_errors_that_differ_only_in_what_they_quote_are_the_same(
    one: tuple[str, str], two: tuple[str, str]
) -> None:
    assert shown(one[0], "error", one[1]) == shown(two[0], "error", two[1])
    assert shown("no such table", "error") != shown("no such column", "error")
    assert shown("don't: a", "error") != shown("don't: b", "error"), "an apostrophe does not quote"


def test_a_text_without_anything_that_varies_costs_no_digest() -> None:
    assert shown("hello") is NOTHING_SHOWN


COUNTS = {
    "pytest": ("=== 2 failed, 5 passed, 1 skipped in 0.31s ===", "2 failed, 5 passed, 1 skipped"),
    "unittest": ("Ran 12 tests in 0.003s\n\nFAILED (failures=2)", "Ran 12 tests, FAILED (failures=2)"),
    "unittest that passed": ("Ran 1 test in 0.003s\n\nOK\n", "Ran 1 test, OK"),
    "cargo": ("test result: FAILED. 3 passed; 1 failed; 0 ignored;", "3 passed, 1 failed, 0 ignored"),
    "jest": ("Tests:       1 failed, 3 passed, 4 total", "1 failed, 3 passed"),
    "go": ("--- FAIL: TestA (0.00s)\nFAIL\tpkg/a\t0.1s", "--- FAIL: TestA, FAIL\tpkg/a"),
    "TAP": ("# tests 3\n# pass 2\n# fail 1", "# tests 3, # pass 2, # fail 1"),
    "no tests": ("hello, it is ok to fail", ""),
}


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(("text", "counts"), COUNTS.values(), ids=COUNTS.keys())
def test_the_counts_of_a_test_run_are_read(text: str, counts: str) -> None:
    assert counts_of_tests(text) == counts


def test_many_test_names_are_a_digest_of_bounded_length() -> None:
    assert len(counts_of_tests("".join(f"--- FAIL: Test{number}\n" for number in range(500)))) == 16


def test_a_long_text_counts_with_head_tail_and_number_of_lines() -> None:
    long = "x" * READ_CHARS + "\n"
    assert shown(long + "end") == shown("x" * READ_CHARS + "xxxx\nend")
    assert shown(long + "end") != shown(long + "\nend")
    assert shown(long + "end") != shown(long + "END")


@given(st.text(alphabet="0123456789:-./sm tmpid[]x~\n", max_size=300))
def test_what_varies_is_taken_out_once_and_for_all(text: str) -> None:
    once = without_varying(text)
    assert (once is text) == (once == text)


LONG = [
    "1" * READ_CHARS,
    "12:" * 20_000,
    "0x" * 30_000,
    "tmp" * 20_000,
    "[1" * 30_000,
    "-" * 60_000,
    "'a" * 30_000,
]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_the_cost_of_a_text_grows_with_its_length(text: str) -> None:
    def show(length: int) -> None:
        shown(text[:length])
        shown(text[:length], "error", '{"path":"1"}')

    assert grows_in_line(show, len(text) // TIMES)
