"""Computes two numbers of tokens for an attachment: the maximum that a vendor may bill, and the usual number.

The maximum is the largest of three numbers: the number that the sender declares, the number that was counted, and the
number that follows from the size in bytes. If an attachment cannot be opened, the maximum is that of the largest
attachment that the vendor accepts. If the backend's window is smaller, the maximum is the window. If the window is
unknown, the usual window of the model family is used (`Vendor.window`).
"""

from __future__ import annotations

from math import ceil

from gateway.context.attachments.vendors import IMAGE_TOKENS, Vendor
from gateway.domain.attachment import Attachment

LARGE_PAGE = 512 * 1024
"""Bytes of a page with a full-page scan. A document of N bytes that was counted has at least N ÷ `LARGE_PAGE` pages."""
SMALL_PAGE = 1024
"""Bytes of an almost empty page. A document of N bytes that cannot be counted may have N ÷ `SMALL_PAGE` pages."""
USUAL_PAGE = 100 * 1024
TEXT_BYTES_PER_TOKEN = 2
"""Minimum bytes of text per token, in any language. The usual number is `USUAL_TEXT_BYTES`."""
USUAL_TEXT_BYTES = 4
XML_BYTES_PER_TOKEN = 3
"""Minimum bytes of XML per token. The XML of an Office file contains markup besides the text. The usual number of bytes
is `USUAL_XML_BYTES`."""
USUAL_XML_BYTES = 20
DENSEST = 3
"""Maximum tokens per byte of an Office file. The file is a compressed archive; its XML is compressed to about a tenth.
"""
_EXACT = {"pcm16": 48_000, "g711_ulaw": 8000, "g711_alaw": 8000}
"""Bytes per second of sound without a header, by the definitions of OpenAI's formats."""
_LOSSLESS = ("UklGR", "ZkxhQ", "Rk9STQ")
"""The first base64 characters of WAV, FLAC and AIFF files."""
_FASTEST_LOSSLESS, _FASTEST, _USUAL, _SLOWEST = 192_000, 40_000, 16_000, 1000
"""Four rates of sound in bytes per second: lossless stereo at 48 kHz; MP3's maximum, 320 kbit/s; the usual rate, 128
kbit/s; MP3's minimum, 8 kbit/s."""
_USUAL_SECONDS = 60.0
_USUAL_PAGES = 5
"""Usual number of pages of a document that the request only refers to."""


def most(attachment: Attachment, vendor: Vendor, window: int) -> int:
    """The maximum number of tokens of an attachment. A budget reserves this number."""
    if attachment.kind == "image":
        return window if attachment.format == "video" else min(vendor.image, window)
    found = (
        _most_audio(attachment, vendor) if attachment.kind == "audio" else _most_document(attachment, vendor, window)
    )
    return window if found is None else min(found, window)


def usual(attachment: Attachment, vendor: Vendor) -> int:
    """The usual number of tokens of an attachment. Forecasts use this number."""
    if attachment.kind == "image":
        return min(IMAGE_TOKENS, vendor.image)
    if attachment.kind == "audio":
        return ceil(_usual_seconds(attachment) * vendor.second)
    size, measured = attachment.size, attachment.measured
    if attachment.format == "text":
        return ceil(size / USUAL_TEXT_BYTES)
    if attachment.format == "office":
        xml = measured.text_bytes if measured is not None else size * USUAL_XML_BYTES // USUAL_TEXT_BYTES
        return ceil(xml / USUAL_XML_BYTES)
    if measured is not None:
        return max(measured.pages, 1) * vendor.page_usual
    pages = _USUAL_PAGES if attachment.data is None else 1 + size // USUAL_PAGE
    return pages * vendor.page_usual


def known(attachment: Attachment) -> bool:
    """Whether the size of the attachment is known. If it is not, no space in the context window is reserved for the
    attachment."""
    return attachment.measured is not None or attachment.format in ("text", "image") or attachment.format in _EXACT


def _most_document(attachment: Attachment, vendor: Vendor, window: int) -> int | None:
    size, measured, limit = attachment.size, attachment.measured, vendor.most_pages(window)
    if attachment.data is None:
        return None if limit is None else limit * vendor.page
    if attachment.format == "text":
        return ceil(size / TEXT_BYTES_PER_TOKEN)
    if attachment.format == "office":
        xml = measured.text_bytes / XML_BYTES_PER_TOKEN if measured is not None else size * DENSEST
        return ceil(max(xml, size / USUAL_TEXT_BYTES))
    if measured is None:
        pages, text = 1 + size // SMALL_PAGE, 0
    else:
        pages, text = max(measured.pages, ceil(size / LARGE_PAGE)), measured.text_bytes
    if limit is not None:
        pages = min(pages, limit)
    if vendor.page_text:
        text = max(pages * vendor.page_text, text // TEXT_BYTES_PER_TOKEN)
    return text + pages * vendor.page_image


def _most_audio(attachment: Attachment, vendor: Vendor) -> int | None:
    seconds, size = vendor.seconds, attachment.size
    if attachment.data is not None:
        if attachment.measured is not None:
            implied = size / (_FASTEST_LOSSLESS if _lossless(attachment) else _FASTEST)
            found = max(attachment.measured.seconds, implied)
        else:
            found = size / _EXACT.get(attachment.format, _SLOWEST)
        seconds = found if seconds is None else min(found, seconds)
    return None if seconds is None else ceil(seconds * vendor.second) + 1


def _usual_seconds(attachment: Attachment) -> float:
    if attachment.measured is not None:
        return attachment.measured.seconds
    if attachment.data is None:
        return _USUAL_SECONDS
    rate = _EXACT.get(attachment.format) or (_EXACT["pcm16"] if _lossless(attachment) else _USUAL)
    return attachment.size / rate


def _lossless(attachment: Attachment) -> bool:
    return attachment.data is not None and attachment.data.startswith(_LOSSLESS, attachment.start)
