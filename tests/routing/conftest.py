"""Backends, policies and requests that read like sentences; prices and grader are the real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.policy import Policy
from gateway.domain.protocols import BackendState
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, Controls, Turn
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.domain.tenant import Key, Tenant
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router

EASY = "What is the capital of France?"
HARD = (
    "Let G be a finite group in which every element has order at most 2. Prove that G is abelian, determine all "
    "possible orders of G, and count the subgroups of index 2 when the group has sixteen elements."
)
SPANISH = "¿Cuántos días faltan para que termine la primavera en Argentina?"


def backend(name: str, tier: str, usd: str | None = None, **more: Any) -> Backend:
    """`usd` per 1M input tokens, the same four-fold for output; None leaves it unpriced."""
    price = PriceEntry(input=Decimal(usd), output=Decimal(usd) * 4) if usd is not None else None
    known: dict[str, Any] = {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": f"{name}-model", **more}
    return Backend(name=name, tier=tier, price=price, **known)


SMALL = backend("small", "small", "0.1", capabilities={"logprobs"}, region="eu", window_tokens=4096)
LARGE = backend("large", "large", "1", capabilities={"tools"}, region="eu", window_tokens=32768)
HOSTED = backend("hosted", "hosted", "3", capabilities={"tools", "vision"}, region="us")


@dataclass
class Fleet:
    """Every backend is well except those in `down`."""

    down: set[str] = field(default_factory=set)

    def state(self, backend: Backend) -> BackendState:
        resting = backend.name in self.down
        return BackendState(not resting, "resting after 5 failures" if resting else "")


def tenant(**policy: Any) -> Tenant:
    return Tenant(Key("key_1", "search"), Policy(team="search", **policy))


def request(text: str = EASY, model: str = "auto", **changes: Any) -> CompletionRequest:
    turns = changes.pop("turns", [Turn(0, "user", text)])
    known: dict[str, Any] = {
        "id": "req_1",
        "dialect": "openai_chat",
        "raw": b"",
        "body": {},
        "stream": False,
        "max_output_tokens": 100,
        "temperature": None,
        "needs": frozenset(),
        "controls": Controls(),
    }
    return CompletionRequest(model=model, turns=turns, **{**known, **changes})


@pytest.fixture(scope="session")
def grader() -> Grader:
    return Grader.load()


@pytest.fixture(scope="session")
def catalogue() -> PriceBook:
    return PriceBook.load()


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


Decide = Callable[..., Route]


@pytest.fixture
def router(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> Router:
    return Router(lambda: grader, catalogue, fleet, [SMALL, LARGE, HOSTED])


@pytest.fixture
def decide(router: Router) -> Decide:
    """`decide(request, tenant, least=50)` → the route."""

    def decide(asked: CompletionRequest, who: Tenant | None = None, least: int = 50, session: str = "") -> Route:
        return router.decide(asked, who or tenant(), ContextEstimate(max(least, 50), least), session)

    return decide


def record(asked: CompletionRequest, who: Tenant | None = None) -> Record:
    return Record(asked.id, who or tenant(), asked.model, asked.dialect, asked.stream)
