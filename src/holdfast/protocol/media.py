"""What a model can read beside words: the type of a content, by its first bytes, and what it weighs."""

from __future__ import annotations

import math
import re
import zlib

from holdfast.protocol.messages import MediaType

MEDIA_BYTES = 5_000_000
"""The largest image or PDF."""
IMAGE_WEIGHT = 16_000
"""As how many bytes of text an image counts: at most so many tokens, and likely a quarter of them."""
PAGE_WEIGHT = 8_000
"""As how many bytes of text a page of a PDF counts."""
_BYTES_PER_PAGE = 100_000
"""The assumed size of a page, in a PDF that does not list its pages."""
_MAX_PAGES = 600
"""The most pages that a provider takes. A PDF whose list of pages cannot be read counts as that."""
_INFLATED_BYTES = 16_000_000
"""How much of the compressed lists of a PDF is read."""
_PACKED = re.compile(rb"/ObjStm(?![a-zA-Z])(.{0,4000}?)stream\r?\n", re.DOTALL)
_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_BEGINNINGS: tuple[tuple[bytes, MediaType], ...] = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def media_type(content: bytes) -> MediaType | None:
    """Return the type, by the first bytes; None if it cannot be attached."""
    for beginning, kind in _BEGINNINGS:
        if content.startswith(beginning):
            return kind
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    try:
        content.decode()
    except UnicodeDecodeError:
        return None
    return None if b"\0" in content else "text/plain"


def weight_of(kind: MediaType, content: bytes) -> int:
    """Return as how many bytes of text an image or a PDF counts; 0 for a text, which counts in full."""
    if kind == "text/plain":
        return 0
    return PAGE_WEIGHT * _pages(content) if kind == "application/pdf" else IMAGE_WEIGHT


def _pages(content: bytes) -> int:
    """Return how many pages a PDF has, at most. Since PDF 1.5 a page may be listed inside a compressed stream."""
    found, left = len(_PAGE.findall(content)), _INFLATED_BYTES
    for packed in _PACKED.finditer(content):
        stream = content[packed.end() : content.find(b"endstream", packed.end())]
        try:
            plain = zlib.decompressobj().decompress(stream, left)
        except zlib.error:
            return max(found, _MAX_PAGES)
        left -= len(plain)
        if left <= 0 or b"/Predictor" in packed[1]:
            return max(found, _MAX_PAGES)
        found += len(_PAGE.findall(plain))
    return found or max(math.ceil(len(content) / _BYTES_PER_PAGE), 1)
