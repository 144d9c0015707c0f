"""Simulates a provider's prompt cache for one account. Computes which tokens of a prompt are read from the cache, which
are written to the cache, and which are neither."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.context.bill.blocks import Block
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import LONG_S, LOOK_BACK, MOST_MARKS, STEP_TOKENS, CacheRules


class PromptCache:
    """The entries of the cache, by the digest of the cached prefix. Requests must be billed in order of time."""

    def __init__(self, rules: CacheRules) -> None:
        self._rules = rules
        self._entries: dict[bytes, tuple[float, float]] = {}
        """Digest of a prefix → (time at which the entry expires, lifetime of the entry), both in seconds."""

    def bill(self, blocks: Sequence[Block], at: float, output_tokens: int = 0) -> Usage:
        """The usage of a request that is sent at the time `at` (seconds). Raises ValueError for cache marks that
        Anthropic refuses."""
        if not blocks:
            return Usage(output_tokens=output_tokens)
        if self._rules.kind == "common":
            return self._common(blocks, at, output_tokens)
        if self._rules.kind == "newest":
            marks = [(len(blocks) - 1, self._rules.ttl_s)]
            read = self._found(blocks, len(blocks) - 1, len(blocks), at)
        else:
            marks = marks_of(blocks)
            read = max((self._found(blocks, place, LOOK_BACK + 1, at) for place, _ in marks), default=-1)
        return self._marked(blocks, marks, read, at, output_tokens)

    def _found(self, blocks: Sequence[Block], place: int, most: int, at: float) -> int:
        """Index of the last block at which an unexpired cache entry ends; -1 if there is none.

        The search begins at the block with index `place` and goes back over at most `most` blocks.
        """
        for each in range(place, max(-1, place - most), -1):
            if self._live(blocks[each].digest, at):
                return each
        return -1

    def _live(self, digest: bytes, at: float) -> bool:
        entry = self._entries.get(digest)
        return entry is not None and entry[0] >= at

    def _marked(
        self, blocks: Sequence[Block], marks: list[tuple[int, float]], read: int, at: float, output_tokens: int
    ) -> Usage:
        cached = done = blocks[read].tokens if read >= 0 else 0
        short = long = 0
        for place, ttl_s in [(read, 0.0), *marks] if read >= 0 else marks:
            block = blocks[place]
            if place <= read:
                self._use(block.digest, at)
            elif block.tokens >= self._rules.least_tokens:
                if ttl_s == LONG_S:
                    long += block.tokens - done
                else:
                    short += block.tokens - done
                done = block.tokens
                self._entries[block.digest] = (at + ttl_s, ttl_s)
        return Usage(blocks[-1].tokens - done, cached, short, long, output_tokens)

    def _use(self, digest: bytes, at: float) -> None:
        """Renew an entry for its whole lifetime, because it was read. An entry that has expired is not renewed."""
        if self._live(digest, at):
            ttl_s = self._entries[digest][1]
            self._entries[digest] = (at + ttl_s, ttl_s)

    def _common(self, blocks: Sequence[Block], at: float, output_tokens: int) -> Usage:
        read = self._found(blocks, len(blocks) - 1, len(blocks), at)
        tokens = blocks[read].tokens // STEP_TOKENS * STEP_TOKENS if read >= 0 else 0
        cached = tokens if tokens >= self._rules.least_tokens else 0
        for block in blocks:
            self._entries[block.digest] = (at + self._rules.ttl_s, self._rules.ttl_s)
        return Usage(blocks[-1].tokens - cached, cached, output_tokens=output_tokens)


def marks_of(blocks: Sequence[Block]) -> list[tuple[int, float]]:
    """(Index of a block, lifetime in seconds) of each cache mark. Raises ValueError if Anthropic would refuse these
    marks."""
    marks = [(place, block.ttl_s) for place, block in enumerate(blocks) if block.ttl_s]
    if len(marks) > MOST_MARKS:
        raise ValueError(f"{len(marks)} marks; Anthropic allows {MOST_MARKS}")
    lives = [ttl_s for _, ttl_s in marks]
    if lives != sorted(lives, reverse=True):
        raise ValueError("a 1-hour mark stands after a 5-minute one, which Anthropic refuses")
    return marks
