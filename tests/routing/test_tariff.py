"""Prices of the moment in a fitted plan: another strategy where a machine fills up or a price falls, else the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import orjson
import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.protocols import BackendState
from gateway.domain.request import Controls
from gateway.domain.routing.load import Load
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.domain.routing.strategy import StrategyAnswer
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.difficulty.grader import Grader
from gateway.routing.fit.outcomes import Outcomes
from gateway.routing.fit.plan import fit_plan
from gateway.routing.fit.replay import replay
from gateway.routing.router import Router
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import load_plan, save_plan
from gateway.routing.strategy.strategy import Pattern, State, Step, Strategy
from gateway.routing.strategy.tariff import STEP, repriced_usd, steps
from tests.routing.conftest import EASY, Fleet, backend, request, tenant
from tests.routing.recorded import POOL, rows, write

TIERS = {"tiny": "small", "mini": "small", "midi": "large", "grand": "hosted"}
FULL_QUALITY = {"auto": {"quality": 1.0, "reference": "grand"}}


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Outcomes]:
    data = write(tmp_path_factory.mktemp("fit") / "rows.jsonl", rows(400))
    plan, _, outcomes = fit_plan([data], POOL, lambda line: None)
    return plan, outcomes


@pytest.fixture(scope="module")
def plan(fit: tuple[Plan, Outcomes]) -> Plan:
    return fit[0]


@dataclass
class Busy(Fleet):
    """With what servers say of their load."""

    loads: Mapping[str, Load] | None = None

    def state(self, backend: Backend) -> BackendState:
        return replace(super().state(backend), load=(self.loads or {}).get(backend.name))


def priced(model: str, price: tuple[float, float]) -> Backend:
    entry = PriceEntry(input=Decimal(str(price[0])), output=Decimal(str(price[1])))
    return backend(model, TIERS[model], "1").model_copy(update={"price": entry})


def pool(**changed: Backend) -> list[Backend]:
    """At the prices of the fit."""
    return [changed.get(model, priced(model, price)) for model, price in POOL.items()]


def decide(
    plan: Plan, grader: Grader, catalogue: PriceBook, backends: list[Backend], fleet: Fleet | None = None, id: str = "1"
) -> Route:
    router = Router(lambda: grader, catalogue, fleet or Fleet(), backends, plans=[plan] if plan else ())
    asked = request(EASY, controls=Controls(session=id))
    return router.decide(asked, tenant(models=FULL_QUALITY), ContextEstimate(50, 50))


def asked_in_any_case(route: Route) -> set[str]:
    """By a cascade until two agree: its first two."""
    assert route.asking is not None
    (first,) = route.asking.next([])
    return {first, *route.asking.next([StrategyAnswer(first, "7")])}


def test_at_the_prices_of_the_fit_serving_begins_as_replay_does(
    fit: tuple[Plan, Outcomes], grader: Grader, catalogue: PriceBook
) -> None:
    plan, outcomes = fit
    played = list(replay(outcomes, plan, plan.quality_of("grand"), "grand"))
    begun = {each.id: each.called[0] for each in played}
    for id in outcomes.ids[:40]:
        assert decide(plan, grader, catalogue, pool(), id=id).backends[0].name == begun[id]
    assert len(plan.strategies) > 1


def test_a_machine_is_asked_while_it_has_room_and_left_when_it_is_full(
    plan: Plan, grader: Grader, catalogue: PriceBook
) -> None:
    hour = PriceEntry(machine_hour_usd=Decimal(6), tokens_per_second=1000)
    machine = priced("midi", POOL["midi"]).model_copy(update={"price": hour})
    idle = decide(plan, grader, catalogue, pool(midi=machine), Busy(loads={"midi": Load(0, 0, 8)}))
    full = decide(plan, grader, catalogue, pool(midi=machine), Busy(loads={"midi": Load(8, 0, 8)}))
    assert "midi" in asked_in_any_case(idle)
    assert "midi" not in asked_in_any_case(full)


def test_a_model_that_became_cheap_is_asked_alone(plan: Plan, grader: Grader, catalogue: PriceBook) -> None:
    before = decide(plan, grader, catalogue, pool())
    after = decide(plan, grader, catalogue, pool(grand=priced("grand", (0.03, 0.05))))
    assert before.strategy.startswith("cascade")
    assert (after.backends[0].name, after.asking) == ("grand", None)
    assert after.above == {"tiny", "mini", "midi"}


def test_one_price_that_falls_by_little_changes_nothing(plan: Plan, grader: Grader, catalogue: PriceBook) -> None:
    before = decide(plan, grader, catalogue, pool())
    after = decide(plan, grader, catalogue, pool(midi=priced("midi", (0.195, 0.59))))
    assert (before.strategy, before.reason) == (after.strategy, after.reason)


def test_what_it_asks_is_in_the_file_and_adds_up(plan: Plan, tmp_path: Path) -> None:
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again.prices == POOL
    for one, other in zip((*plan.strategies, *plan.reserves), (*again.strategies, *again.reserves), strict=True):
        assert sum(each.usd for each in one.asks.values()) == pytest.approx(one.usd)
        assert {model: each.calls for model, each in other.asks.items()} == pytest.approx(
            {model: each.calls for model, each in one.asks.items()}, abs=1e-4
        )
        assert set(one.asks) <= one.models
    cascade = next(each for each in plan.strategies if each.kind == "cascade")
    assert cascade.asks[next(iter(cascade.first))].calls == 1
    assert min(each.calls for each in cascade.asks.values()) < 1


def test_an_older_file_is_followed_at_the_prices_of_its_fit(
    plan: Plan, grader: Grader, catalogue: PriceBook, tmp_path: Path
) -> None:
    save_plan(plan, tmp_path / "plan.json")
    content = orjson.loads((tmp_path / "plan.json").read_bytes())
    for each in (*content["strategies"], *content["singles"], *content["reserves"]):
        del each["asks"]
    (tmp_path / "plan.json").write_bytes(orjson.dumps(content))
    dear = pool(mini=priced("mini", (1.5, 6.0)))
    new, old = (decide(each, grader, catalogue, dear).strategy for each in (plan, load_plan(tmp_path / "plan.json")))
    assert new != old
    assert old == decide(plan, grader, catalogue, pool()).strategy
    del content["prices"]
    (tmp_path / "plan.json").write_bytes(orjson.dumps(content))
    assert decide(load_plan(tmp_path / "plan.json"), grader, catalogue, dear).strategy == old


def strategy(name: str, quality: float, asks: Mapping[str, Step]) -> Strategy:
    states: dict[Pattern, State] = {((), ()): State("", dict.fromkeys(asks, (1.0,)))}
    return Strategy("", name, quality, sum(each.usd for each in asks.values()), states, (), asks)


def test_a_cost_is_its_parts_at_their_prices() -> None:
    both = strategy("both", 0.9, {"a": Step(1.0, 2e-4), "b": Step(0.25, 8e-4)})
    assert repriced_usd(both, {}) == pytest.approx(1e-3)
    change = steps(3.0, 1.0)
    assert change is not None
    assert repriced_usd(both, {"b": change}) == pytest.approx(2e-4 + 3 * 8e-4, rel=STEP)
    assert steps(1.03, 1.0) is None


def test_what_was_free_and_costs_now_counts_by_its_calls() -> None:
    half = strategy("half", 0.9, {"free": Step(0.5, 0.0), "b": Step(1.0, 1e-3)})
    assert steps(0.0, 0.0) is None
    change = steps(4e-3, 0.0)
    assert change is not None
    assert repriced_usd(half, {"free": change}) == pytest.approx(1e-3 + 2e-3, rel=STEP)


def test_what_was_measured_less_carefully_is_not_believed_to_be_better() -> None:
    """A reserve that looks lucky beats nobody for a price that moved by a hair; with its models cheap, it does."""
    cheap, dear = strategy("cheap", 0.8, {"a": Step(1, 1e-4)}), strategy("dear", 0.9, {"b": Step(1, 1e-2)})
    lucky = strategy("lucky", 0.99, {"c": Step(1, 1e-2)})
    plan = Plan(("a", "b", "c"), (cheap, dear), (), (lucky,))
    able = {name: name for name in "abc"}

    def chosen(**tariff: int) -> tuple[str, float]:
        start = plan.begin("?", 0.95, "s", able, tuple(tariff.items()))
        assert start is not None
        return start.strategy.description, start.expected

    assert chosen(a=1) == ("dear", 0.9)
    assert chosen(c=-10) == ("lucky", 0.9)
