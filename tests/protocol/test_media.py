"""What an image or a PDF weighs: never less than what a provider may count."""

from __future__ import annotations

import zlib

import pytest

from holdfast.protocol.media import PAGE_WEIGHT, weight_of

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
    ],
)
def test_each_page_of_a_pdf_weighs_wherever_it_is_listed(content: bytes, pages: int) -> None:
    assert weight_of("application/pdf", content) == pages * PAGE_WEIGHT
