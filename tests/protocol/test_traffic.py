"""What the journal keeps of the requests of a call."""

from __future__ import annotations

from holdfast.protocol.blobs import blobs_of
from holdfast.protocol.events import ToolCallFinished
from holdfast.protocol.tools import CallResult
from holdfast.protocol.traffic import SHOWN_LINES, Exchange, Requests, Traffic, shortened, traffic_of

ALLOWED = Exchange("GET", "http://a.example/", "allowed", "", 200, 100, 2_000)
REFUSED = Exchange("CONNECT", "b.example:443", "refused", "b.example:443 is not listed.")
UNREAD = Exchange("", "", "failed", "The head had no end.", sent_bytes=0, received_bytes=1)


def test_each_request_is_a_line_with_what_became_of_it() -> None:
    assert Requests((ALLOWED, REFUSED, UNREAD), 7).text().splitlines() == [
        "GET http://a.example/: 200, 100 bytes sent, 2,000 bytes received",
        "CONNECT b.example:443: refused, 0 bytes sent, 0 bytes received. b.example:443 is not listed.",
        "a request: failed, 0 bytes sent, 1 byte received. The head had no end.",
        "[7 requests more]",
    ]


def test_the_requests_of_a_call_are_counted_and_the_first_lines_are_in_the_record() -> None:
    lines = [f"line {number}" for number in range(2 * SHOWN_LINES)]
    found = traffic_of(Requests((ALLOWED, REFUSED, UNREAD), 7), lines, "blob")
    assert found == Traffic(tuple(lines[:SHOWN_LINES]), 10, 1, 100, 2_001, "blob")
    assert found.told == "10 requests, 1 refused, 100 bytes sent, 2,001 bytes received"
    assert traffic_of(Requests((ALLOWED,)), [], "").told == "1 request, 100 bytes sent, 2,000 bytes received"


def test_a_long_line_keeps_its_begin_and_what_became_of_the_request() -> None:
    assert shortened("x" * 800) == "x" * 800
    long = Exchange("GET", "http://a.example/" + "x" * 5_000, "refused", "It is not listed.")
    line = shortened(long.line)
    assert line.startswith("GET http://a.example/xxx")
    assert line.endswith("xxx: refused, 0 bytes sent, 0 bytes received. It is not listed.")
    assert len(line) == 803


def test_the_blob_of_many_requests_lives_as_long_as_the_record() -> None:
    def named(blob: str, of_requests: str) -> tuple[str, ...]:
        traffic = Traffic((), 30, blob=of_requests)
        return blobs_of(ToolCallFinished("t1.c1", CallResult("ok", "", blob=blob, traffic=traffic)))

    assert (named("a", "b"), named("", "b"), named("a", ""), named("", "")) == (
        ("a", "b"),
        ("b",),
        ("a",),
        (),
    )
