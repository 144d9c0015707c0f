"""The results of a look-up: a hit, a join, or a miss with the data that storing its answer needs."""

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
        """The cost of the backend call that produced the answer; None: unpriced."""
        return self.stored.cost_pico

    @property
    def usage(self) -> Usage:
        return self.stored.usage


@dataclass(frozen=True, slots=True)
class Join:
    """The answer to another client's identical request, which is in progress."""

    answer: Answer
    call: SharedCall
    """The shared call, which has the exact cost after it has ended."""


@dataclass(slots=True)
class Ticket:
    """The data that storing the answer needs. It is computed once."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    policy: CachePolicy
    question: Question | None
    sharers: str
    """The scope in which the answer is shared; see `keys.scope`."""
    asker: str = ""
    """The end user or session that sent the request; see `keys.asker`."""
    vector: Vector | None = None
    near: SemanticHit | None = None
    """The candidate closest to a hit. Its answer is compared with the fresh one."""


@dataclass(slots=True)
class Miss:
    ticket: Ticket | None
    """None: the answer will not be stored."""
    shared: bool = False
    """Whether identical requests may join the answer."""
