"""The rules of providers' prompt caches for each model (autumn 2026), and the cache marks in a prompt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Lifetime = Literal["5m", "1h"]

SHORT_S, LONG_S = 300.0, 3600.0
"""The two lifetimes of an entry in Anthropic's prompt cache, in seconds from the last use (docs.anthropic.com, prompt
caching)."""
CACHE_FIELDS = (b"cache_control", b"prompt_cache_breakpoint")
"""Fields with which clients ask that a prompt is cached. The field of the dialect Responses is translated to
Anthropic's field."""
MOST_MARKS = 4
LOOK_BACK = 20
"""Maximum number of blocks between a mark and the end of an earlier cache entry that is still read."""
STEP_TOKENS = 128
"""OpenAI's earlier models cache a common beginning in steps of this number of tokens."""


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The rules by which a provider caches the prompts of one model."""

    kind: Literal["marks", "newest", "common"]
    """What is cached. `marks`: only marked parts. `newest`: the prompt up to the end of the newest message, without
    marks. `common`: the longest common beginning, without marks."""
    least_tokens: int
    """Minimum number of tokens of a prefix that is cached."""
    ttl_s: float = SHORT_S
    """Seconds for which an entry stays after its last use, unless the entry has a lifetime of its own."""
    read: float = 0.1
    """Price of a token that is read from the cache, relative to the price of plain input."""
    write: float = 1.25
    """Price of a token that is written to the cache, relative to the price of plain input."""

    @property
    def writes_cost(self) -> bool:
        return self.kind != "common"


_LEAST: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"claude-\w+-5-5"), 512),
    (re.compile(r"opus-4-[5-9]|haiku-4-5"), 4096),
    (re.compile(r"haiku-3|3-5-haiku|3-haiku"), 2048),
    (re.compile(r"claude"), 1024),
)
"""(Pattern of a model's name, minimum tokens of a prefix) for models of Anthropic. The first pattern that is found in
the name counts."""
_DEEP_DISCOUNT = re.compile(r"claude-\w+-5-5")
_LATER_GPT = re.compile(r"gpt-(?:5\.[6-9]|5\.\d\d|[6-9]|\d\d)")
"""Matches GPT-5.6 and later models, which charge for cache writes."""


@lru_cache(maxsize=256)
def rules_of(model: str) -> CacheRules:
    """The cache rules for the model with this name. They do not depend on the server that runs the model."""
    name = model.lower()
    if "claude" in name:
        read = 0.05 if _DEEP_DISCOUNT.search(name) else 0.1
        return CacheRules("marks", next(tokens for pattern, tokens in _LEAST if pattern.search(name)), read=read)
    if _LATER_GPT.search(name):
        return CacheRules("newest", 1024, 1800.0)
    return CacheRules("common", 1024, read=0.25, write=1.0)


@dataclass(slots=True)
class CacheMarks:
    """The cache marks in a prompt for Anthropic: positions up to which the prompt is cached. If a prompt has too many
    marks, those of `fixed` are left out first, then the last positions of `earlier`.

    A position is the number of content blocks from the first message on. Thinking blocks are not counted.
    """

    newest: Lifetime | None = None
    """Lifetime of a mark at the last block; None if the last block gets no mark."""
    earlier: tuple[tuple[int, Lifetime], ...] = ()
    """(Position, lifetime) of further marks in the conversation."""
    fixed: bool = False
    """Whether the end of the system prompt and the end of the tools are marked."""
    remove: bool = False
    """Whether to remove the client's own marks."""
    at: float = 0.0
    """Time at which the marks were planned, in monotonic seconds."""
    agent: bool = False
    """Whether the request offers tools."""
    cut: frozenset[int] = frozenset()
    """Indexes of the turns that are dropped or shortened."""
    anchor: int = 0
    """Number of messages before the position at which the next trimming of the session will begin."""
    messages: int = 0
    """Number of messages in the client's request."""
    blocks: int = 0
    """Number of blocks of the conversation that was sent. It is set when the body is written."""
    lives_long: bool = False
    """Whether the last block has a lifetime of an hour. It is set when the body is written."""

    @property
    def changes(self) -> bool:
        """Whether the marks change the body of the request."""
        return bool(self.newest or self.earlier or self.fixed or self.remove)
