"""`model_group`: one name for a model from several vendors, of which the cheapest that can serve is called."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from pydantic import ValidationError

from gateway.domain.access import Access
from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.price import Price
from gateway.domain.policy import DataPolicy
from gateway.domain.protocols import BackendState
from gateway.domain.routing.load import Load
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, Forbidden
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.aliases import known, resolve
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from gateway.settings.gateway import GatewayConfig
from tests.routing.conftest import HARD, SMALL, SPANISH, Fleet, backend, request, tenant

DIRECT = backend("direct", "hosted", "3", region="us", model_group="sonnet")
CLOUD = backend("cloud", "hosted", "2", region="eu", model="eu.sonnet-v1:0", model_group="sonnet")
RESOLD = backend("resold", "hosted", "2.5", region="us", model_group="sonnet")
GROUP = [DIRECT, CLOUD, RESOLD]
ESTIMATE = ContextEstimate(50, 50)

Ask = Callable[..., Route]


@pytest.fixture
def ask(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> Ask:
    router = Router(lambda: grader, catalogue, fleet, [SMALL, *GROUP])

    def ask(model: str = "sonnet", who: Tenant | None = None, text: str = HARD) -> Route:
        return router.decide(request(text, model), who or tenant(), ESTIMATE)

    return ask


def names(route: Route) -> list[str]:
    return [each.name for each in route.backends]


def test_a_group_is_a_name() -> None:
    policy = tenant().policy
    assert [each.name for each in resolve("sonnet", policy, [SMALL, *GROUP]).backends] == ["direct", "cloud", "resold"]
    assert "sonnet" in known(policy, GROUP)
    assert known(policy, [SMALL]) == ["auto", "small", "small-model"]


def test_the_cheapest_comes_first_and_the_others_are_fallbacks(ask: Ask, fleet: Fleet) -> None:
    assert names(ask()) == ["cloud", "resold", "direct"]
    fleet.down = {"cloud"}
    assert names(ask()) == ["resold", "direct"]


def test_one_member_can_be_named(ask: Ask) -> None:
    assert names(ask("direct")) == ["direct"]
    assert names(ask("eu.sonnet-v1:0")) == ["cloud"]


def test_a_region_rule_holds(ask: Ask) -> None:
    assert names(ask(who=tenant(data=DataPolicy(regions=("us",))))) == ["resold", "direct"]
    with pytest.raises(Forbidden):
        ask(who=tenant(data=DataPolicy(regions=("jp",))))


@pytest.mark.parametrize("text", [HARD, SPANISH], ids=["graded", "abstained"])
@pytest.mark.parametrize("reference", [None, "sonnet"])
def test_a_rule_may_name_a_group_and_the_cheapest_member_is_its_reference(
    ask: Ask, fleet: Fleet, text: str, reference: str | None
) -> None:
    who = tenant(models={"auto": {"candidates": ["small", "sonnet"], "reference": reference, "quality": 0.99}})
    route = ask("auto", who, text)
    assert route.backends[0].name == "cloud"
    assert route.reference is not None
    assert route.reference.name == "cloud"
    fleet.down = {"cloud"}
    assert ask("auto", who, text).backends[0].name == "resold"


def test_a_reference_that_is_named_stays_it(ask: Ask) -> None:
    who = tenant(models={"auto": {"candidates": ["small", "sonnet"], "reference": "direct"}})
    route = ask("auto", who, SPANISH)
    assert route.reference is not None
    assert route.reference.name == "direct"


def test_a_list_of_allowed_models_may_name_a_group() -> None:
    access = Access("search", ("sonnet",), None, ())
    assert [access.excludes(each) == "" for each in (SMALL, *GROUP)] == [False, True, True, True]
    assert Access("search", ("",), None, ()).excludes(SMALL), "an empty name opens nothing"


def test_vectors_of_a_group_are_of_one_model(ask: Ask, grader: Grader, catalogue: PriceBook, fleet: Fleet) -> None:
    router = Router(lambda: grader, catalogue, fleet, [SMALL, *GROUP])
    assert router.decide(request(model="sonnet", one_model=True), tenant(), ESTIMATE).backends
    who = tenant(models={"mixed": {"candidates": ["small", "sonnet"]}})
    with pytest.raises(BadRequest, match=r"'mixed' stands for several models.* Name one backend: small, "):
        router.decide(request(model="mixed", one_model=True), who, ESTIMATE)


class Hourly:
    """Prices that another member is cheapest at every hour. `paid`: members that are paid already."""

    def __init__(self) -> None:
        self.hour = 0
        self.paid: set[str] = set()

    def prepaid(self, backend: Backend) -> bool:
        return backend.name in self.paid

    def price(self, backend: Backend, day: str | None = None) -> Price | None:
        place = [each.name for each in GROUP].index(backend.name)
        usd = 1 + (place + self.hour) % 3
        return Price(usd * 10**6, usd * 4 * 10**6)


def test_with_prices_that_change_each_hour_the_cheapest_healthy_one_is_called(grader: Grader) -> None:
    prices, fleet = Hourly(), Fleet()
    router = Router(lambda: grader, prices, fleet, GROUP)  # type: ignore[arg-type]  # nothing else is asked of a list
    paid = cheapest = Decimal(0)
    for prices.hour in range(48):
        fleet.down = {GROUP[prices.hour % 5].name} if prices.hour % 5 < 3 else set()
        route = router.decide(request(model="sonnet"), tenant(), ESTIMATE)
        costs = {each.name: prices.price(each).plain(50, 100) for each in GROUP if each.name not in fleet.down}  # type: ignore[union-attr]
        paid += costs[route.backends[0].name]
        cheapest += min(costs.values())
    assert paid == cheapest


@pytest.mark.parametrize("amount", [0.0005, 0.02, 0.2, 10.0], ids=["minutes", "hours", "days", "more than is used"])
def test_a_commitment_is_used_first_and_the_cheapest_healthy_one_when_it_is_used_up(
    grader: Grader, amount: float
) -> None:
    """60 requests an hour; the balance is known every tenth request only. What exceeds the cheapest choice is spent in
    the time until the balance is known."""
    prices, fleet = Hourly(), Fleet()
    router = Router(lambda: grader, prices, fleet, GROUP)  # type: ignore[arg-type]  # nothing else is asked of a list
    left = best_left = Decimal(str(amount)) * 10**12
    paid = cheapest = Decimal(0)
    for number in range(48 * 60):
        prices.hour = number // 60
        fleet.down = {GROUP[prices.hour % 5].name} if prices.hour % 5 < 3 else set()
        costs = {each.name: prices.price(each).plain(50, 100) for each in GROUP if each.name not in fleet.down}  # type: ignore[union-attr]
        if number % 10 == 0:
            prices.paid = {"direct"} if left > 0 else set()
        chosen = router.decide(request(model="sonnet"), tenant(), ESTIMATE).backends[0].name
        own = min(left, costs[chosen]) if chosen == "direct" else Decimal(0)
        left, paid = left - own, paid + costs[chosen] - own
        best = "direct" if best_left >= costs.get("direct", best_left + 1) else min(costs, key=lambda name: costs[name])
        own = min(best_left, costs[best]) if best == "direct" else Decimal(0)
        best_left, cheapest = best_left - own, cheapest + costs[best] - own
    excess = paid / cheapest - 1 if cheapest else paid
    assert excess <= Decimal("0.03")
    assert left <= best_left


class Used(Fleet):
    """The limit of each of these is used up."""

    def state(self, backend: Backend) -> BackendState:
        return BackendState(True, headroom=0.0 if backend.name in self.down else 0.5)


def test_a_member_whose_rate_limit_is_used_up_comes_last(grader: Grader, catalogue: PriceBook) -> None:
    router = Router(lambda: grader, catalogue, Used({"cloud"}), GROUP)
    assert names(router.decide(request(model="sonnet"), tenant(), ESTIMATE)) == ["resold", "direct", "cloud"]
    everywhere = Router(lambda: grader, catalogue, Used({each.name for each in GROUP}), GROUP)
    assert names(everywhere.decide(request(model="sonnet"), tenant(), ESTIMATE))[0] == "cloud"


SAME = [each.model_copy(update={"price": CLOUD.price}) for each in GROUP]


class Timed(Fleet):
    """Each member with its state."""

    def __init__(self, **states: BackendState) -> None:
        super().__init__()
        self.states = states

    def state(self, backend: Backend) -> BackendState:
        return self.states[backend.name]


def measured(ms: float | None, ago_s: float = 1.0, in_flight: int = 0) -> BackendState:
    return BackendState(True, "", in_flight, ms, ago_s)


@pytest.mark.parametrize(
    ("states", "order"),
    [
        ((measured(900), measured(400), measured(600)), ["cloud", "resold", "direct"]),
        ((measured(400), measured(900), measured(600)), ["direct", "resold", "cloud"]),
        ((measured(400), measured(900), measured(None)), ["resold", "direct", "cloud"]),
        ((measured(400), measured(900), measured(None, in_flight=1)), ["direct", "cloud", "resold"]),
        ((measured(400), measured(300, ago_s=61), measured(300, ago_s=61, in_flight=1)), ["cloud", "direct", "resold"]),
    ],
    ids=["faster", "other", "an idle one is measured", "one call measures it", "old measurements do not count"],
)
def test_of_equal_prices_the_faster_member_is_called(
    grader: Grader, catalogue: PriceBook, states: tuple[BackendState, ...], order: list[str]
) -> None:
    fleet = Timed(**{each.name: state for each, state in zip(SAME, states, strict=True)})
    router = Router(lambda: grader, catalogue, fleet, SAME)
    assert names(router.decide(request(model="sonnet"), tenant(), ESTIMATE)) == order


def test_a_faster_member_is_not_called_for_a_higher_price(grader: Grader, catalogue: PriceBook) -> None:
    fleet = Timed(direct=measured(10), cloud=measured(5000), resold=measured(20))
    router = Router(lambda: grader, catalogue, fleet, GROUP)
    assert names(router.decide(request(model="sonnet"), tenant(), ESTIMATE)) == ["cloud", "resold", "direct"]


HOURLY = PriceEntry(machine_hour_usd=Decimal(144), tokens_per_second=2000, billing="reserved")
RESERVED = backend(
    "cloud", "hosted", kind="azure", api_key="env:AZURE_KEY", model_group="sonnet", slots=4, spill_after=0.001
).model_copy(update={"price": HOURLY})


@pytest.mark.parametrize(
    ("state", "order"),
    [
        (BackendState(True, load=Load(2, capacity=4)), ["cloud", "resold", "direct"]),
        (BackendState(True, load=Load(4, capacity=4), wait_s=0.1), ["resold", "direct", "cloud"]),
        (BackendState(False, "429"), ["resold", "direct"]),
    ],
    ids=["free", "full", "refused"],
)
def test_reserved_capacity_is_used_first(
    grader: Grader, catalogue: PriceBook, state: BackendState, order: list[str]
) -> None:
    """Its hours, divided by all tokens that it could make, are 20 USD per 1M, above the prices of the others."""
    fleet = Timed(cloud=state, direct=measured(20), resold=measured(10))
    router = Router(lambda: grader, catalogue, fleet, [DIRECT, RESERVED, RESOLD])
    assert names(router.decide(request(model="sonnet"), tenant(), ESTIMATE)) == order


@pytest.mark.parametrize("group", ["direct", "hosted", "auto", "a group"])
def test_a_group_needs_a_name_of_its_own(group: str) -> None:
    about = {"name": "direct", "kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    with pytest.raises(ValidationError, match="model_group"):
        GatewayConfig.model_validate({"backends": [{**about, "model_group": group}]})
