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
        """The cost of the answer at the backend that first gave it; None: unpriced."""
        return self.stored.cost_pico

    @property
    def usage(self) -> Usage:
        return self.stored.usage


@dataclass(frozen=True, slots=True)
class Join:
    """The answer to another client's identical request, which is in progress."""

    answer: Answer
    call: SharedCall
    """The shared call; it has the exact cost once it is over."""


@dataclass(slots=True)
class Ticket:
    """What storing the answer needs, computed once."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    policy: CachePolicy
    question: Question | None
    sharers: str
    """The scope in which answers are shared; see `keys.scope`."""
    asker: str = ""
    """The end user or session that asks; see `keys.asker`."""
    vector: Vector | None = None
    near: SemanticHit | None = None
    """The candidate that was closest to a hit, with which the fresh answer is compared."""


@dataclass(slots=True)
class Miss:
    ticket: Ticket | None
    """None: the answer is not stored."""
    shared: bool = False
    """Whether identical requests may join its answer."""
