"""Results of a look-up: hit, join, or miss with what storing its answer needs."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.cache.coalescing.shared_call import SharedCall
from gateway.cache.keys import Question
from gateway.cache.packing import Vector
from gateway.cache.quality.hit_checker import SemanticHit
from gateway.cache.store.bodies import Stored
from gateway.domain.answer import Answer
from gateway.domain.money.usage import Usage
from gateway.domain.policy import CachePolicy


@dataclass(frozen=True, slots=True)
class Hit:
    answer: Answer
    stored: Stored

    @property
    def saved_pico(self) -> int | None:
        """What the backend that first answered took for it; None: unpriced."""
        return self.stored.cost_pico

    @property
    def usage(self) -> Usage:
        return self.stored.usage


@dataclass(frozen=True, slots=True)
class Join:
    """The answer to another client's equal request, which is in progress."""

    answer: Answer
    call: SharedCall
    """The shared call; it has the exact cost once it is over."""


@dataclass(slots=True)
class Ticket:
    """What storing the answer needs, worked out once."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    policy: CachePolicy
    question: Question | None
    sharers: str
    """The scope that shares answers to it; see `key.scope`."""
    asker: str = ""
    """The end user or session that asks; see `key.asker`."""
    vector: Vector | None = None
    near: SemanticHit | None = None
    """What came near to being a hit, for the fresh answer to be compared with."""


@dataclass(slots=True)
class Miss:
    ticket: Ticket | None
    """None: the answer is not to be kept."""
    shared: bool = False
    """Others may join its answer: `Cache.lead` has it brought, or `Cache.announce` tells of it."""
