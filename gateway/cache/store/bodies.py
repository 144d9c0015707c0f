"""Bodies of stored answers: bundled in the state server, the most used ones also in memory."""

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
    completion: bytes
    """The plain JSON body in the client's dialect."""
    usage: Usage
    cost_pico: int | None
    """What the attempt cost that answered; None: unpriced."""
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


BESIDE_BYTES = 530
"""What an answer at hand takes beside its body: digest, usage, names, and their places."""


class Bodies:
    """Every method that talks to the server raises StateUnavailable."""

    def __init__(self, state: State, *, at_hand_bytes: int = 8 * 2**20) -> None:
        self._state = state
        self._at_hand: OrderedDict[bytes, Stored] = OrderedDict()
        self._at_hand_bytes, self._limit = 0, at_hand_bytes
        self.recalled = 0

    def _key(self, place: str) -> str:
        return self._state.key("cache", place)

    async def get(self, entry: Entry, *, recall: bool) -> Stored | None:
        """`recall`: the index is up to date, so what is at hand still counts."""
        if recall and (stored := self._at_hand.get(entry.digest)):
            self._at_hand.move_to_end(entry.digest)
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
        """Answers by digest, which live and end together."""
        await bundle.put(self._state, self._key(place), [(digest, each.encode()) for digest, each in answers], ttl_s)

    async def delete(self, entries: Iterable[Entry]) -> None:
        digests: dict[str, list[bytes]] = {}
        for entry in entries:
            digests.setdefault(entry.place, []).append(entry.digest)
        await self._state.pipeline([("HDEL", self._key(place), *these) for place, these in digests.items()])

    def keep(self, digest: bytes, stored: Stored) -> None:
        """Keep it in memory from now on, as long as there is space."""
        if digest in self._at_hand:
            self.forget(digest)
        self._at_hand[digest] = stored
        self._at_hand_bytes += len(stored.completion) + BESIDE_BYTES
        while self._at_hand_bytes > self._limit:
            _, oldest = self._at_hand.popitem(last=False)
            self._at_hand_bytes -= len(oldest.completion) + BESIDE_BYTES

    def forget(self, digest: bytes) -> None:
        stored = self._at_hand.pop(digest, None)
        if stored is not None:
            self._at_hand_bytes -= len(stored.completion) + BESIDE_BYTES
