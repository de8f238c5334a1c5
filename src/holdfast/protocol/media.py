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
_PACKED = re.compile(rb"/ObjStm(?![a-zA-Z])")
_STREAM = re.compile(rb"stream\r?\n")
_HEAD_BYTES = 4_000
"""How far behind its type a stream begins, at most."""
_SEARCHED = 16
"""How many times the length of a PDF is searched for its streams. In a usual one, each byte belongs to one stream."""
_PAGE = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_PNG_HEAD_BYTES = 33
_GIF_HEAD_BYTES = 13
_WEBP_HEAD_BYTES = 20
_JPEG_FRAME = re.compile(rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]")
"""What begins the header of a frame, with its size."""
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


def is_whole(kind: MediaType, content: bytes) -> bool:
    """Return whether a content has a whole header, and the mark of its end. A provider would refuse one without them,
    with each request of its session.
    """
    match kind:
        case "image/png":
            return content[12:16] == b"IHDR" and len(content) >= _PNG_HEAD_BYTES and b"IEND" in content
        case "image/jpeg":
            return _JPEG_FRAME.search(content) is not None and b"\xff\xd9" in content
        case "image/gif":
            return len(content) > _GIF_HEAD_BYTES and b";" in content[_GIF_HEAD_BYTES:]
        case "image/webp":
            size = int.from_bytes(content[4:8], "little")
            return content[12:15] == b"VP8" and _WEBP_HEAD_BYTES < size + 8 <= len(content)
        case "application/pdf":
            return b"%%EOF" in content
        case "text/plain":
            return True


def weight_of(kind: MediaType, content: bytes) -> int:
    """Return as how many bytes of text an image or a PDF counts; 0 for a text, which counts in full."""
    if kind == "text/plain":
        return 0
    return PAGE_WEIGHT * _pages(content) if kind == "application/pdf" else IMAGE_WEIGHT


def _pages(content: bytes) -> int:
    """Return how many pages a PDF has, at most. Since PDF 1.5 a page may be listed inside a compressed stream."""
    found, left, searched = len(_PAGE.findall(content)), _INFLATED_BYTES, 0
    for packed in _PACKED.finditer(content):
        head_end = min(packed.end() + _HEAD_BYTES, len(content))
        begin = _STREAM.search(content, packed.end(), head_end)
        end = content.find(b"endstream", begin.end()) if begin is not None else head_end
        searched += end - packed.end()
        if end < 0 or searched > _SEARCHED * len(content):
            return max(found, _MAX_PAGES)
        if begin is None:
            continue
        try:
            plain = zlib.decompressobj().decompress(content[begin.end() : end], left)
        except zlib.error:
            return max(found, _MAX_PAGES)
        left -= len(plain)
        if left <= 0 or b"/Predictor" in content[packed.end() : begin.start()]:
            return max(found, _MAX_PAGES)
        found += len(_PAGE.findall(plain))
    return found or max(math.ceil(len(content) / _BYTES_PER_PAGE), 1)
