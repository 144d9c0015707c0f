"""Counts tokens: an estimate that takes microseconds, or the exact count, which may run in a thread."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from gateway.context import vocabulary
from gateway.context.estimate import estimate
from gateway.context.vocabulary import EncodingName

if TYPE_CHECKING:
    from tiktoken import Encoding

_ON_LOOP_CHARACTERS = 16_000
"""Maximum characters that are counted on the event loop. Counting so many characters takes about a millisecond; for a
text this short, starting a thread is not worthwhile."""
_CL100K = re.compile(r"(?:^|/)(?:gpt-4(?![o.\d])|gpt-3\.5|gpt-35)")
_FAMILIES: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"claude"), 1.2),
    (re.compile(r"smollm"), 1.5),
    (re.compile(r"qwen|gemini|gemma"), 1.2),
    (re.compile(r"mi[sx]tral|codestral|ministral|llama|deepseek|phi-"), 1.15),
)


@lru_cache(maxsize=256)
def encoding_of(model: str) -> EncodingName:
    """The encoding for counting tokens of `model`: cl100k_base for GPT-4 and GPT-3.5, o200k_base for all others."""
    return "cl100k_base" if _CL100K.search(model.lower()) else "o200k_base"


@lru_cache(maxsize=256)
def family_factor(model: str) -> float:
    """The ratio of two numbers of tokens for the same text: the number by the model's own tokenizer, divided by the
    number that the gateway counts. 1.0 for OpenAI's models and for unknown models.

    Measured on the texts that estimate.py describes: Claude's published tokenizer 1.03–1.30, DeepSeek's 0.9–1.14,
    Mistral's Tekken 1.0–1.2 (1.8 on tables of numbers), SmolLM2's 1.1–1.5 (2.1 on Japanese).

    Measured on recorded sessions with Claude 4.5 and 4.6, against the usage that the provider reported, without earlier
    reasoning: median 1.03, at most 1.2.

    Tokenizers without a measurement are assumed to split digits as Mistral's does, and otherwise to resemble
    cl100k_base.
    """
    name = model.lower()
    return next((factor for family, factor in _FAMILIES if family.search(name)), 1.0)


class Counter:
    """Implements `TokenCounter`. Each vocabulary is loaded on first use and then kept."""

    def __init__(self) -> None:
        self._encodings: dict[EncodingName, Encoding] = {}
        self._loading = threading.Lock()

    def estimate(self, text: str) -> int:
        return estimate(text)

    def count(self, text: str, encoding: EncodingName = "o200k_base") -> int:
        """The exact number of tokens. The first call loads the vocabulary. If `ready()` is false, call this method in a
        thread."""
        return vocabulary.count(self.load(encoding), text) if text else 0

    def at_once(self, text: str) -> int:
        """The exact number of tokens if counting is fast, otherwise an estimate. For callers on the event loop,
        which must not wait.
        """
        return self.count(text) if self.ready() and len(text) <= _ON_LOOP_CHARACTERS else estimate(text)

    def ready(self, encoding: EncodingName = "o200k_base") -> bool:
        return encoding in self._encodings

    def load(self, encoding: EncodingName = "o200k_base") -> Encoding:
        """The encoding, which contains the vocabulary. The first call blocks for about 0.3 s."""
        found = self._encodings.get(encoding)
        if found is None:
            with self._loading:
                found = self._encodings.get(encoding)
                if found is None:
                    found = self._encodings[encoding] = vocabulary.load(encoding)
        return found

    async def counts(self, texts: Sequence[str], encoding: EncodingName = "o200k_base") -> list[int]:
        """The exact number of tokens of each text. Counts in a thread if counting would block the event loop."""
        if self.ready(encoding) and sum(map(len, texts)) <= _ON_LOOP_CHARACTERS:
            return self._counts(texts, encoding)
        return await asyncio.to_thread(self._counts, texts, encoding)

    def _counts(self, texts: Sequence[str], encoding: EncodingName) -> list[int]:
        return [self.count(text, encoding) for text in texts]
