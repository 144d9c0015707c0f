"""The results of a look-up: a hit, a join, or a miss. A miss contains the data needed to store the new answer."""

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
        """The cost of the backend call that produced the stored answer; None if the cost is unknown."""
        return self.stored.cost_pico

    @property
    def usage(self) -> Usage:
        return self.stored.usage


@dataclass(frozen=True, slots=True)
class Join:
    """The answer to an identical request of another client. The call for this answer is in progress."""

    answer: Answer
    call: SharedCall
    """The shared call. After it has ended, it has the exact cost."""


@dataclass(slots=True)
class Ticket:
    """The data needed to store the answer to a request. It is computed once for each request."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    policy: CachePolicy
    question: Question | None = None
    sharers: str = ""
    """The scope within which the answer is shared: one key, one team or several teams."""
    asker: str = ""
    """Hash of the end user or session that sent the request; empty if unknown."""
    vector: Vector | None = None
    near: SemanticHit | None = None
    """The candidate that was nearest to a hit. Its answer is compared with the fresh answer."""


@dataclass(slots=True)
class Miss:
    ticket: Ticket | None
    """None if the answer will not be stored."""
    shared: bool = False
    """Whether identical requests may join the answer."""
