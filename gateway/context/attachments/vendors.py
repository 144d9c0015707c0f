"""Documented token counts of pages, images and seconds of sound, by model family."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

IMAGE_TOKENS = 1600
"""Usual tokens of a large image. Claude's maximum was about 1,570 until Opus 4.7. GPT-4o's maximum in high detail was
1,445."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """Maximum and usual numbers of tokens of pages, images and sound, for one family of models."""

    image: int = 4784
    """Maximum tokens of one image."""
    page_text: int = 3000
    """Maximum tokens of the text of one page."""
    page_image: int = 4784
    """Maximum tokens of the picture of one page; 0 if the provider makes no picture of a page."""
    page_usual: int = 2300
    """Usual tokens of one page, for text and picture together."""
    pages: int | None = None
    """Maximum pages in a request; None: the provider documents no maximum."""
    wide_pages: int | None = None
    """Maximum pages in a request to a model with a window of a million tokens; None: the provider documents no maximum.
    """
    second: float = 32.0
    """Tokens of one second of sound."""
    seconds: float | None = None
    """Maximum seconds of sound in a request; None: the provider documents no maximum."""
    window: int = 200_000
    """Context window in tokens that is assumed if the backend's window is unknown."""

    @property
    def page(self) -> int:
        return self.page_text + self.page_image

    def most_pages(self, window: int) -> int | None:
        return self.wide_pages if window >= _WIDE else self.pages


_WIDE = 1_000_000

OTHER = Vendor()
"""For unknown models: the largest documented figures of the hosted vendors."""
CLAUDE = Vendor(pages=100, wide_pages=600)
"""Anthropic, "PDF support": each page is turned into an image and its text is extracted; text is typically 1,500 to
3,000 tokens a page; 100 pages a request, 600 with a window of a million tokens; 32 MB. Amazon's Bedrock guide: about
7,000 tokens for 3 pages. "Vision": an image is at most 4,784 visual tokens (2,576 pixels on the long edge) since
Claude Opus 4.7."""
CLAUDE_BEFORE = replace(CLAUDE, image=IMAGE_TOKENS, page_image=IMAGE_TOKENS)
"""Until Claude 4.6, images were scaled down to 1,568 pixels, which is about 1,600 tokens."""
GPT = Vendor(image=IMAGE_TOKENS, page_image=IMAGE_TOKENS, page_usual=1700, second=10.0, window=400_000)
"""OpenAI, "File inputs": the extracted text and an image of each page; 50 MB. "Images and vision": 85 + 170 tokens a
tile, at most 8 tiles (GPT-4o: 1,445), or at most 1,536 patches. "Managing costs" of the Realtime API: a user's sound is
a token per 100 ms."""
GPT_PATCHES = replace(GPT, image=3779, page_image=3779)
"""OpenAI's small models: at most 1,536 patches per image, and each patch counts as up to 2.46 tokens."""
GPT_ORIGINAL = replace(GPT, image=10_000, page_image=10_000)
"""Models since GPT-5.4 with `detail: original`: at most 10,000 patches per image."""
GPT_4O_MINI = replace(GPT, image=48_169, page_image=48_169, page_usual=26_000, window=128_000)
"""2,833 tokens per image plus 5,667 tokens per tile, and at most 8 tiles."""
GEMINI = Vendor(
    image=4128,
    page_text=0,
    page_image=1120,
    page_usual=258,
    pages=1000,
    wide_pages=1000,
    second=32.0,
    seconds=34_200.0,
    window=1_048_576,
)
"""Google, "Document understanding": 258 tokens a page, 1,120 in high resolution (Gemini 3), 1,000 pages. "Image
understanding": 258 tokens for each tile of 768 pixels of at most 3,072 by 3,072. "Audio understanding": 32 tokens a
second, 9.5 hours."""
QWEN = Vendor(image=16_384, second=25.0)
"""Qwen2.5-VL's processor: at most 12,845,056 pixels per image, and 28 by 28 pixels per token. Qwen2-Audio: one token
per 40 ms."""

_FAMILIES: tuple[tuple[re.Pattern[str], Vendor], ...] = (
    (re.compile(r"claude-(?:[123]|instant|v\d)|claude-(?:opus|sonnet|haiku)-4(?![-.][7-9](?!\d))"), CLAUDE_BEFORE),
    (re.compile(r"claude"), CLAUDE),
    (re.compile(r"gpt-4o-mini(?!-(?:audio|realtime|transcribe|tts))"), GPT_4O_MINI),
    (re.compile(r"gpt-5\.[4-9]|gpt-[6-9]"), GPT_ORIGINAL),
    (re.compile(r"gpt-4\.1-(?:mini|nano)|gpt-5(?:\.\d)?-(?:mini|nano)|o4-mini"), GPT_PATCHES),
    (re.compile(r"(?:^|/)(?:gpt-|chatgpt|o[1-4](?:-|$))"), GPT),
    (re.compile(r"gemini"), GEMINI),
    (re.compile(r"qwen|qvq"), QWEN),
)


@lru_cache(maxsize=256)
def vendor_of(model: str) -> Vendor:
    """The vendor's figures for `model`, which is the name of the model at its backend."""
    name = model.lower()
    return next((vendor for family, vendor in _FAMILIES if family.search(name)), OTHER)
