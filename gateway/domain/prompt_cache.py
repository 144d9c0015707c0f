"""Providers' prompt caches: their rules by model (autumn 2026), and where a prompt is to be marked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Lifetime = Literal["5m", "1h"]

SHORT_S, LONG_S = 300.0, 3600.0
"""Anthropic's two lifetimes, since the last use (docs.anthropic.com, prompt caching)."""
CACHE_FIELDS = (b"cache_control", b"prompt_cache_breakpoint")
"""Fields with which clients ask for a prompt to be kept; Responses' own is translated into Anthropic's."""
MOST_MARKS = 4
LOOK_BACK = 20
"""Blocks before a mark, at one of which an earlier entry may end that is then read."""
STEP_TOKENS = 128
"""OpenAI's earlier models cache a common beginning in steps of so many tokens."""


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How one model's prompts are cached."""

    kind: Literal["marks", "newest", "common"]
    """`marks`: only what is marked. `newest`: by itself, up to the end of the newest message. `common`: by itself, the
    longest common beginning."""
    least_tokens: int
    """A shorter prefix is not cached."""
    ttl_s: float = SHORT_S
    """Of an entry without a lifetime of its own, since its last use."""
    read: float = 0.1
    """Price of a token that is read, relative to plain input. `write`: of one that is not."""
    write: float = 1.25

    @property
    def writes_cost(self) -> bool:
        return self.kind != "common"


_LEAST: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"claude-\w+-5-5"), 512),
    (re.compile(r"opus-4-[5-9]|haiku-4-5"), 4096),
    (re.compile(r"haiku-3|3-5-haiku|3-haiku"), 2048),
    (re.compile(r"claude"), 1024),
)
"""Anthropic's least prefixes; the first pattern that is found in the model's name counts."""
_DEEP_DISCOUNT = re.compile(r"claude-\w+-5-5")
_LATER_GPT = re.compile(r"gpt-(?:5\.[6-9]|5\.\d\d|[6-9]|\d\d)")
"""GPT-5.6 and later, which charge for writes."""


@lru_cache(maxsize=256)
def rules_of(model: str) -> CacheRules:
    """The rules for a model by its name, without regard to the server that runs it."""
    name = model.lower()
    if "claude" in name:
        read = 0.05 if _DEEP_DISCOUNT.search(name) else 0.1
        return CacheRules("marks", next(tokens for pattern, tokens in _LEAST if pattern.search(name)), read=read)
    if _LATER_GPT.search(name):
        return CacheRules("newest", 1024, 1800.0)
    return CacheRules("common", 1024, read=0.25, write=1.0)


@dataclass(slots=True)
class CacheMarks:
    """Where a prompt for Anthropic is to be marked, in the order in which places are given up if there are too many.

    Places in the conversation are numbers of content blocks from the first message on; a text is one block. Thinking
    blocks are not counted, so that places stay the same when they are left out.
    """

    newest: Lifetime | None = None
    """At the last block; None: not there."""
    earlier: tuple[tuple[int, Lifetime], ...] = ()
    """Behind so many blocks."""
    fixed: bool = False
    """At the ends of the system prompt and of the tools."""
    remove: bool = False
    """Leave out the client's own marks."""
    at: float = 0.0
    """When it was planned, in monotonic seconds."""
    tokens: int = 0
    """Of the whole input, estimated."""
    agent: bool = False
    """Does the request offer tools?"""
    cut: frozenset[int] = frozenset()
    """Indexes of the turns that are left out or changed."""
    anchor: int = 0
    """Number of messages before the place where the next cut of the session will begin."""
    messages: int = 0
    """Number of messages of the request, as its client sent them."""
    blocks: int = 0
    """Of the conversation as it was sent; set when the body is written."""
    lives_long: bool = False
    """Did the last block get the lifetime of an hour? Set likewise."""

    @property
    def changes(self) -> bool:
        """Does it change the body?"""
        return bool(self.newest or self.earlier or self.fixed or self.remove)
