"""What the journal keeps of the requests of a call."""

from __future__ import annotations

from holdfast.protocol.traffic import Exchange, Traffic, text_of, traffic_of

ALLOWED = Exchange("GET", "http://a.example/", "allowed", "", 200, 100, 2_000)
REFUSED = Exchange("CONNECT", "b.example:443", "refused", "b.example:443 is not listed.")
UNREAD = Exchange("", "", "failed", "The head had no end.", sent_bytes=0, received_bytes=1)


def test_each_request_is_a_line_with_what_became_of_it() -> None:
    assert text_of([ALLOWED, REFUSED, UNREAD], 7).splitlines() == [
        "GET http://a.example/: 200, 100 bytes sent, 2,000 bytes received",
        "CONNECT b.example:443: refused, 0 bytes sent, 0 bytes received. b.example:443 is not listed.",
        "a request: failed, 0 bytes sent, 1 byte received. The head had no end.",
        "[7 requests more]",
    ]


def test_the_requests_of_a_call_are_counted() -> None:
    found = traffic_of("blob", [ALLOWED, REFUSED, UNREAD], 7)
    assert found == Traffic("blob", 10, 1, 100, 2_001)
    assert found.told == "10 requests, 1 refused, 100 bytes sent, 2,001 bytes received"
    assert traffic_of("blob", [ALLOWED]).told == "1 request, 100 bytes sent, 2,000 bytes received"
