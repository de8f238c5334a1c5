"""What an image or a PDF weighs: never less than what a provider may count."""

from __future__ import annotations

import zlib

import pytest

from holdfast.protocol.media import MEDIA_BYTES, PAGE_WEIGHT, weight_of
from tests.growth import grows_in_line

PAGE = b"<</Type/Page/Parent 2 0 R>> "
HEAD = b"%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
TAIL = b"\nendstream endobj\n%%EOF\n"


def packed(content: bytes, more: bytes = b"") -> bytes:
    """A PDF with this in an object stream."""
    return HEAD + b"9 0 obj<</Type/ObjStm/Filter/FlateDecode%s>>stream\r\n" % more + content + TAIL


@pytest.mark.requirement("B2")
@pytest.mark.parametrize(
    ("content", "pages"),
    [
        (HEAD + PAGE * 3 + b"%%EOF", 3),
        (packed(zlib.compress(PAGE * 5_000)), 5_000),
        (packed(zlib.compress(PAGE * 7)) + PAGE, 8),
        (packed(zlib.compress(b"<</Type/Pages>>")), 1),
        (packed(b"encrypted"), 600),
        (packed(zlib.compress(PAGE), b"/DecodeParms<</Predictor 12>>"), 600),
        (packed(zlib.compress(bytes(20_000_000))), 600),
        (HEAD + b"/ObjStm " + PAGE * 2 + b"%%EOF", 2),
        (packed(zlib.compress(PAGE)).replace(b"endstream", b""), 600),
    ],
)
def test_each_page_of_a_pdf_weighs_wherever_it_is_listed(content: bytes, pages: int) -> None:
    assert weight_of("application/pdf", content) == pages * PAGE_WEIGHT


@pytest.mark.parametrize(
    "part",
    [
        b"/ObjStm stream\n" + zlib.compress(b""),
        b"/ObjStm ",
        b"/ObjStm stream\n" + zlib.compress(b"") + b"endstream ",
        b"/ObjStm " * 500 + b"stream" * 600,
        b"/Type" + b" " * 1_000,
    ],
)
def test_the_cost_of_weighing_a_pdf_of_any_shape_grows_with_its_length(part: bytes) -> None:
    def weigh(length: int) -> None:
        content = HEAD + part * (length // len(part)) + b"%%EOF"
        assert weight_of("application/pdf", content) >= PAGE_WEIGHT

    assert grows_in_line(weigh, MEDIA_BYTES // 40)


def test_a_stream_inside_of_another_is_read_too() -> None:
    outer = b"/ObjStm>>stream\n" + zlib.compress(b"")
    assert weight_of("application/pdf", HEAD + outer + packed(zlib.compress(PAGE * 4))) == 4 * PAGE_WEIGHT
