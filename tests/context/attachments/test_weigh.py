from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.attachments.vendors import (
    CLAUDE,
    CLAUDE_BEFORE,
    GEMINI,
    GPT,
    GPT_4O_MINI,
    GPT_ORIGINAL,
    GPT_PATCHES,
    OTHER,
    QWEN,
    Vendor,
    vendor_of,
)
from gateway.context.attachments.weigh import LARGE_PAGE, most, usual
from gateway.domain.attachment import Attachment, Measured
from tests.context.attachments.files import base64

WIDE = 1_000_000_000
VENDORS = (CLAUDE, CLAUDE_BEFORE, GPT, GPT_PATCHES, GPT_ORIGINAL, GPT_4O_MINI, GEMINI, QWEN, OTHER)


def document(size: int, measured: Measured | None, form: str = "pdf") -> Attachment:
    return Attachment(0, "document", form, "A" * (size * 4 // 3), measured=measured)


def sound(size: int, seconds: float | None, form: str = "mp3", begins: str = "") -> Attachment:
    measured = None if seconds is None else Measured(seconds=seconds)
    return Attachment(0, "audio", form, begins + "A" * (size * 4 // 3 - len(begins)), measured=measured)


@pytest.mark.parametrize(
    ("model", "vendor"),
    [
        ("claude-opus-4-7", CLAUDE),
        ("claude-sonnet-5", CLAUDE),
        ("claude-sonnet-4-5-20250929", CLAUDE_BEFORE),
        ("claude-opus-4-20250514", CLAUDE_BEFORE),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", CLAUDE_BEFORE),
        ("gpt-4o-mini-2024-07-18", GPT_4O_MINI),
        ("gpt-4o", GPT),
        ("openai/gpt-4.1", GPT),
        ("gpt-4o-mini-audio-preview", GPT),
        ("gpt-5-nano", GPT_PATCHES),
        ("gpt-5.4", GPT_ORIGINAL),
        ("gemini/gemini-3-pro", GEMINI),
        ("Qwen2.5-VL-7B-Instruct", QWEN),
        ("our-deployment", OTHER),
    ],
)
def test_a_model_belongs_to_a_family(model: str, vendor: Vendor) -> None:
    assert vendor_of(model) is vendor


@pytest.mark.parametrize("vendor", VENDORS)
@given(pages=st.integers(1, 100), size=st.integers(1, 3_000_000), text=st.integers(0, 10**6))
def test_a_counted_document_never_holds_less_than_its_pages(vendor: Vendor, pages: int, size: int, text: int) -> None:
    each = document(size, Measured(pages=pages, text_bytes=text))
    assert most(each, vendor, WIDE) >= pages * vendor.page
    assert usual(each, vendor) <= most(each, vendor, WIDE)


@pytest.mark.parametrize("vendor", VENDORS)
@given(seconds=st.floats(0.1, 30_000), size=st.integers(1000, 1_000_000))
def test_a_recording_never_holds_less_than_its_seconds(vendor: Vendor, seconds: float, size: int) -> None:
    each = sound(size, seconds)
    assert most(each, vendor, WIDE) >= seconds * vendor.second


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    "each",
    [
        document(20 * 2**20, Measured(pages=1)),
        document(20 * 2**20, None),
        document(30_000, None, ""),
        document(30_000, None, "office"),
        document(30_000, Measured(text_bytes=200_000), "office"),
        document(30_000, None, "text"),
        sound(10**6, None),
        sound(10**6, 1.0),
        Attachment(0, "document"),
        Attachment(0, "audio"),
        Attachment(0, "image", "image"),
        Attachment(0, "image", "video"),
    ],
)
def test_nothing_holds_more_than_the_window_nor_nothing(vendor: Vendor, each: Attachment) -> None:
    assert 0 < most(each, vendor, 128_000) <= 128_000
    assert usual(each, vendor) > 0


def test_twenty_megabytes_that_claim_a_page_are_no_page() -> None:
    assert most(document(40 * LARGE_PAGE, Measured(pages=1)), GPT, WIDE) == 40 * GPT.page


def test_a_page_full_of_text_counts_by_its_text() -> None:
    assert most(document(500_000, Measured(pages=1, text_bytes=2_000_000)), GPT, WIDE) == 1_000_000 + GPT.page_image


@pytest.mark.parametrize(
    ("each", "vendor", "window", "tokens"),
    [
        (document(1000, Measured(pages=10**6)), CLAUDE_BEFORE, WIDE, 600 * 4600),
        (document(1000, Measured(pages=10**6)), CLAUDE_BEFORE, 200_000, 200_000),
        (Attachment(0, "document"), CLAUDE_BEFORE, 900_000, 100 * 4600),
        (Attachment(0, "document"), GPT, 128_000, 128_000),
        (Attachment(0, "document"), GEMINI, WIDE, 1000 * 1120),
        (Attachment(0, "audio"), GEMINI, WIDE, 9 * 3600 * 32 + 1800 * 32 + 1),
        (Attachment(0, "audio"), GPT, 128_000, 128_000),
        (Attachment(0, "document", "text", "parcel " * 100, plain=True), GPT, WIDE, 350),
        (document(48_000, None, "text"), GPT, WIDE, 24_000),
        (sound(48_000 * 10, None, "pcm16"), GPT, WIDE, 101),
        (sound(192_000 * 10, 1.0, "wav", begins="UklGR"), GPT, WIDE, 101),
    ],
)
def test_documented_maxima_limit_what_is_held(each: Attachment, vendor: Vendor, window: int, tokens: int) -> None:
    assert most(each, vendor, window) == tokens


def test_base64_counts_as_the_bytes_that_it_holds() -> None:
    fields: dict[str, Any] = {"format": "text", "data": base64(b"x" * 3000)}
    assert Attachment(0, "document", **fields).size == 3000
