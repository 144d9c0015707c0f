"""What a team's own answers taught changes its decisions, and nobody else's; what is only looked on at is told."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gateway.domain.routing.learned import NOTHING, Learned
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.domain.tenant import Key, Tenant
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.strategy import State, Strategy
from tests.routing.conftest import EASY, HARD, LARGE, SMALL, Fleet, request, tenant

RULE = {"candidates": ["small", "large"], "reference": "large"}
TWO = {"auto": RULE}


@dataclass
class Taught:
    """Implements Evidence."""

    known: dict[tuple[str, str], Learned] = field(default_factory=dict)

    def adjust(self, team: str, backend: str) -> Learned:
        return self.known.get((team, backend), NOTHING)


@pytest.fixture
def taught() -> Taught:
    return Taught()


@pytest.fixture
def router(grader: Grader, catalogue: PriceBook, taught: Taught) -> Router:
    return Router(lambda: grader, catalogue, Fleet(), [SMALL, LARGE], evidence=taught)


def decide(router: Router, text: str, who: Tenant | None = None) -> Route:
    return router.decide(request(text), who or tenant(models=TWO), ContextEstimate(50, 50))


def test_a_backend_that_was_found_wanting_is_not_asked_by_that_team(router: Router, taught: Taught) -> None:
    taught.known["search", "small"] = Learned(-2.5, 20, 1.0)
    other = Tenant(Key("key_2", "chat"), tenant(models=TWO).policy.model_copy(update={"team": "chat"}))
    assert decide(router, EASY).backends[0] is LARGE
    assert decide(router, EASY, other).backends[0] is SMALL


def test_a_backend_that_is_better_than_the_prior_thought_gets_harder_requests(router: Router, taught: Taught) -> None:
    assert decide(router, HARD).backends[0] is LARGE
    taught.known["search", "small"] = Learned(6.0, 400)
    assert decide(router, HARD).backends[0] is SMALL


def test_the_adequacy_that_was_reckoned_with_is_told(router: Router, taught: Taught) -> None:
    before = decide(router, EASY).considered[0].adequacy
    taught.known["search", "small"] = Learned(-0.5, 20)
    after = decide(router, EASY).considered[0].adequacy
    assert before is not None
    assert after == pytest.approx(taught.known["search", "small"].adequacy(before))


def test_a_margin_alone_raises_what_is_wanted(router: Router, taught: Taught) -> None:
    taught.known["search", "small"] = Learned(0.0, 20, 0.999)
    assert decide(router, EASY).backends[0] is LARGE


def single(model: str, quality: float, usd: float) -> Strategy:
    return Strategy("one backend", model, quality, usd, {((), ()): State(model, {model: (1.0,)})}, (model,))


def test_a_plan_asks_nobody_who_was_found_wanting(grader: Grader, catalogue: PriceBook, taught: Taught) -> None:
    singles = (single("small", 0.95, 0.001), single("large", 0.95, 0.01))
    router = Router(
        lambda: grader,
        catalogue,
        Fleet(),
        [SMALL, LARGE],
        evidence=taught,
        plans=[Plan(("small", "large"), singles, singles)],
    )
    assert decide(router, EASY).backends[0] is SMALL
    taught.known["search", "small"] = Learned(-2.5, 20, 0.8)
    assert decide(router, EASY).backends[0] is LARGE


def test_observing_records_what_would_have_been_asked_and_expected(router: Router) -> None:
    route = decide(router, EASY, tenant(models={"auto": {**RULE, "escalate": False}}, mode="observe"))
    assert route.backends[0] is LARGE
    assert route.decided is not None
    assert route.decided.calls == ((SMALL, 1.0),)
    assert route.decided.adequacy == route.considered[0].adequacy


def test_a_possible_escalation_is_part_of_the_promise(router: Router) -> None:
    decided = decide(router, EASY, tenant(models=TWO, mode="observe")).decided
    assert decided is not None
    assert decided.calls == ((SMALL, 1.0), (LARGE, 1 - decided.adequacy))


def test_where_the_reference_would_have_served_it_is_the_promise(router: Router) -> None:
    decided = decide(router, HARD, tenant(models=TWO, mode="observe")).decided
    assert decided is not None
    assert (decided.calls, decided.adequacy) == (((LARGE, 1.0),), 1.0)


def test_what_routing_serves_is_no_promise(router: Router) -> None:
    assert decide(router, EASY).decided is None
