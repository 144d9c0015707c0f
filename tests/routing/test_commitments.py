"""Routing prefers what is paid already, and no budget or ceiling is computed with the lower cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.domain.backend import Backend
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.candidates import Candidate
from gateway.routing.ceiling import Ceiling
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from tests.routing.conftest import HARD, SMALL, Fleet, backend, request, tenant

DEAR = backend("dear", "hosted", "6", model_group="sonnet")
CHEAP = backend("cheap", "hosted", "2", model_group="sonnet")
OTHER = backend("other", "hosted", "4", model_group="sonnet")
ESTIMATE = ContextEstimate(50, 50)
Routing = Callable[..., Route]


@pytest.fixture
def route(grader: Grader, fleet: Fleet) -> Routing:
    def route(*paid: str, model: str = "sonnet", session: str = "", pool: tuple[Backend, ...] = ()) -> Route:
        prices = PriceBook.load()
        prices.prepay(frozenset(paid))
        router = Router(lambda: grader, prices, fleet, pool or (SMALL, DEAR, CHEAP, OTHER))
        who = tenant(
            models={"cheap": {"candidates": ["dear", "cheap"], "reference": "cheap"}} if model == "cheap" else {}
        )
        return router.decide(request(HARD, model), who, ESTIMATE, session)

    return route


def names(route: Route) -> list[str]:
    return [each.name for each in route.backends]


def test_the_member_that_is_paid_already_is_called_first(route: Routing, fleet: Fleet) -> None:
    assert names(route()) == ["cheap", "other", "dear"]
    assert names(route("dear")) == ["dear", "cheap", "other"]
    assert names(route("dear", "other")) == ["other", "dear", "cheap"], "of two that are paid, the cheaper one"
    fleet.down = {"dear"}
    assert names(route("dear")) == ["cheap", "other"]


def test_a_ceiling_limits_the_cost_in_the_ledger(route: Routing) -> None:
    ceiling = Ceiling(1000)
    paid = Candidate(DEAR, cost_pico=60, ledger_pico=3000)
    assert ceiling.exceeded_by(paid)
    assert not ceiling.exceeded_by(Candidate(DEAR, cost_pico=60))
    assert not ceiling.allows(paid, Candidate(CHEAP, cost_pico=10), 0.5)
    found = route("dear", model="cheap")
    assert found.ceiling_pico == 50 * 2 * 10**6 + 100 * 8 * 10**6
    assert "dear" in found.above
    assert found.backends[0].name == "cheap"


def test_the_ceiling_of_a_model_that_is_paid_is_its_cost_in_the_ledger(route: Routing) -> None:
    assert route("cheap", model="cheap").ceiling_pico == 50 * 2 * 10**6 + 100 * 8 * 10**6


def test_a_replica_that_is_paid_takes_the_conversations_of_the_others(route: Routing) -> None:
    twins = tuple(backend(name, "hosted", "2", model="one", model_group="twins") for name in ("left", "right"))
    for session in map(str, range(12)):
        assert route("right", model="twins", session=session, pool=twins).backends[0].name == "right"
        assert route("left", model="twins", session=session, pool=twins).backends[0].name == "left"


def test_a_free_backend_stays_free_and_one_without_a_price_unknown(route: Routing) -> None:
    free, unknown = backend("free", "hosted", "0", model_group="g"), backend("unknown", "hosted", model_group="g")
    found = route("free", "unknown", model="g", pool=(free, unknown))
    assert {each.backend: each.cost_pico for each in found.considered} == {"free": 0, "unknown": None}
