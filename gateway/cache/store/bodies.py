"""The bodies of stored answers. They are stored in bundles on the state server. The most recently used ones are
also kept in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from gateway.cache.entry import Entry
from gateway.domain.money.usage import Usage
from gateway.state.redis import bundle
from gateway.state.redis.connection import State


@dataclass(slots=True)
class Stored:
    """A stored answer, with its usage and cost."""

    completion: bytes
    """The plain JSON body, in the client's dialect."""
    usage: Usage
    cost_pico: int | None
    """The cost of the backend call, in pico-dollars; None if the cost is unknown."""
    backend: str
    model: str

    def encode(self) -> bytes:
        usage = self.usage
        counts = (
            *(usage.input_tokens, usage.cached_tokens, usage.cache_write_5m_tokens, usage.cache_write_1h_tokens),
            *(usage.output_tokens, usage.reasoning_tokens, usage.audio_tokens, usage.estimated),
        )
        return orjson.dumps((counts, self.cost_pico, self.backend, self.model)) + b"\n" + self.completion

    @classmethod
    def decode(cls, value: bytes) -> Stored:
        head, _, completion = value.partition(b"\n")
        counts, cost_pico, backend, model = orjson.loads(head)
        return cls(completion, Usage(*counts), cost_pico, backend, model)


OVERHEAD_BYTES = 530
"""Bytes of memory of an answer in addition to its body: digest, usage, names, dictionary entry."""


class Bodies:
    """The bodies of stored answers. The asynchronous methods use the state server and raise StateUnavailable."""

    def __init__(self, state: State, *, memory_bytes: int = 8 * 2**20) -> None:
        self._state = state
        self._in_memory: OrderedDict[bytes, Stored] = OrderedDict()
        self._in_memory_bytes, self._limit = 0, memory_bytes
        self.recalled = 0

    def _key(self, place: str) -> str:
        return self._state.key("cache", place)

    async def get(self, entry: Entry, *, recall: bool) -> Stored | None:
        """The answer of `entry`; None if it no longer exists.

        `recall`: whether the answer may come from memory. Pass True only if the index is up to date.
        """
        if recall and (stored := self._in_memory.get(entry.digest)):
            self._in_memory.move_to_end(entry.digest)
            self.recalled += 1
            return stored
        value = await bundle.get(self._state, self._key(entry.place), entry.digest)
        if value is None:
            return None
        stored = Stored.decode(value)
        if recall:
            self.keep(entry.digest, stored)
        return stored

    async def put(self, place: str, answers: Iterable[tuple[bytes, Stored]], ttl_s: float) -> None:
        """Store answers, each with its digest, in the bundle `place`. They expire together after `ttl_s` seconds."""
        await bundle.put(self._state, self._key(place), [(digest, each.encode()) for digest, each in answers], ttl_s)

    async def delete(self, entries: Iterable[Entry]) -> None:
        """Delete the answers of `entries` from the state server. Answers in memory stay there."""
        digests: dict[str, list[bytes]] = {}
        for entry in entries:
            digests.setdefault(entry.place, []).append(entry.digest)
        await self._state.pipeline([("HDEL", self._key(place), *these) for place, these in digests.items()])

    def keep(self, digest: bytes, stored: Stored) -> None:
        """Keep an answer in memory. If the memory limit is exceeded, drop the answers that were not used for the
        longest time."""
        if digest in self._in_memory:
            self.forget(digest)
        self._in_memory[digest] = stored
        self._in_memory_bytes += len(stored.completion) + OVERHEAD_BYTES
        while self._in_memory_bytes > self._limit:
            _, oldest = self._in_memory.popitem(last=False)
            self._in_memory_bytes -= len(oldest.completion) + OVERHEAD_BYTES

    def forget(self, digest: bytes) -> None:
        """Drop an answer from memory."""
        stored = self._in_memory.pop(digest, None)
        if stored is not None:
            self._in_memory_bytes -= len(stored.completion) + OVERHEAD_BYTES
