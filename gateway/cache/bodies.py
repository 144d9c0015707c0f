"""The stored answers themselves: one value each in the state server, the hottest kept at hand while that is safe."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import orjson

from gateway.domain.usage import Usage
from gateway.state.connection import State


@dataclass(frozen=True, slots=True)
class Stored:
    completion: bytes
    """The plain JSON body in the client's dialect."""
    usage: Usage
    cost_pico: int | None
    """What the attempt cost that answered; None: unpriced."""
    backend: str
    model: str

    def encode(self) -> bytes:
        head = {
            "usage": asdict(self.usage),
            "cost_pico": self.cost_pico,
            "backend": self.backend,
            "model": self.model,
        }
        return orjson.dumps(head) + b"\n" + self.completion

    @classmethod
    def decode(cls, value: bytes) -> Stored:
        head, _, completion = value.partition(b"\n")
        facts = orjson.loads(head)
        return cls(completion, Usage(**facts["usage"]), facts["cost_pico"], facts["backend"], facts["model"])


class Bodies:
    """Values by digest. Every method that talks to the server raises StateUnavailable."""

    def __init__(self, state: State, *, at_hand_bytes: int = 8 * 2**20) -> None:
        self._state = state
        self._at_hand: OrderedDict[bytes, Stored] = OrderedDict()
        self._at_hand_bytes, self._limit = 0, at_hand_bytes
        self.recalled = 0

    def _key(self, digest: bytes) -> str:
        return self._state.key("cache", digest.hex())

    async def get(self, digest: bytes, *, recall: bool) -> Stored | None:
        """`recall`: the index is up to date, so what is at hand still counts."""
        if recall and (stored := self._at_hand.get(digest)):
            self._at_hand.move_to_end(digest)
            self.recalled += 1
            return stored
        value = await self._state.call("GET", self._key(digest))
        if value is None:
            return None
        stored = Stored.decode(value)
        if recall:
            self._keep(digest, stored)
        return stored

    async def put(self, digest: bytes, stored: Stored, ttl_s: float) -> None:
        await self._state.call("SET", self._key(digest), stored.encode(), "PX", max(1, int(ttl_s * 1000)))

    async def delete(self, digests: Iterable[bytes]) -> None:
        await self._state.pipeline([("DEL", self._key(digest)) for digest in digests])

    def _keep(self, digest: bytes, stored: Stored) -> None:
        self.forget(digest)
        self._at_hand[digest] = stored
        self._at_hand_bytes += len(stored.completion)
        while self._at_hand_bytes > self._limit:
            self.forget(next(iter(self._at_hand)))

    def forget(self, digest: bytes) -> None:
        stored = self._at_hand.pop(digest, None)
        if stored is not None:
            self._at_hand_bytes -= len(stored.completion)
