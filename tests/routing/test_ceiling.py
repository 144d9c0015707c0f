"""No routed call is expected to cost more than the model that the client named."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from gateway.domain.backend import PriceEntry
from gateway.domain.money.usage import Usage
from gateway.domain.policy import Policy
from gateway.domain.request import Controls, Turn
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.candidates import Candidate
from gateway.routing.ceiling import Ceiling, named_model, same_model
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from tests.routing.conftest import EASY, HARD, HOSTED, LARGE, SMALL, SPANISH, Decide, Fleet, backend, record, request
from tests.routing.conftest import tenant as of

ALL = [SMALL, LARGE, HOSTED]
NAMED = {
    "gpt-5-mini": {"candidates": ["small", "large", "hosted"], "reference": "hosted"},  # 0.25 and 2 USD
    "gpt-4o-mini": "auto",  # 0.15 and 0.6 USD
    "claude-*": "auto",
    "claude-opus-*": {"candidates": ["large", "hosted"]},
    "fast": "auto",
    "large": {"candidates": ["small", "large", "hosted"]},
    "claude-haiku-4-5": "hosted",
}


def names(route: Route) -> list[str]:
    return [each.name for each in route.backends]


@pytest.mark.parametrize("text", [HARD, SPANISH])
def test_a_named_model_that_is_no_backend_is_the_ceiling_by_its_list_price(decide: Decide, text: str) -> None:
    route = decide(request(text, model="gpt-5-mini"), of(models=NAMED))
    assert route.ceiling_pico == 50 * 250_000 + 100 * 2_000_000
    assert (names(route)[0], names(route)[-1]) == ("small", "hosted")
    assert route.above == {"large", "hosted"}
    assert route.reason.endswith("; hosted costs more than the model that the client named")


def test_a_named_backend_is_the_ceiling_though_the_policy_has_dearer_ones(decide: Decide) -> None:
    route = decide(request(HARD, model="large"), of(models=NAMED))
    assert names(route) == ["large", "small", "hosted"]
    assert (route.reference, route.above) == (LARGE, {"hosted"})


@pytest.mark.parametrize("model", ["auto", "fast"])
def test_for_names_of_the_operators_own_the_reference_is_the_ceiling(decide: Decide, model: str) -> None:
    models = {**NAMED, "auto": {"reference": "large"}}
    route = decide(request(HARD, model=model), of(models=models))
    assert names(route) == ["large", "small", "hosted"]
    assert (route.ceiling_pico, route.above) == (50 * 1_000_000 + 100 * 4_000_000, {"hosted"})


def test_what_the_named_model_may_cost_is_left_to_it(decide: Decide) -> None:
    route = decide(request(HARD, model="claude-opus-4-5"), of(models=NAMED))
    assert (names(route), route.above) == (["hosted", "large"], frozenset())


def test_a_tier_that_the_request_asks_for_is_given_and_marked(decide: Decide) -> None:
    asked = request(EASY, model="gpt-4o-mini", controls=Controls(tier="hosted"))
    route = decide(asked, of(models=NAMED))
    assert (names(route), route.above) == (["hosted"], {"large", "hosted"})


def test_an_alias_to_one_backend_is_obeyed_and_marked(decide: Decide) -> None:
    route = decide(request(EASY, model="claude-haiku-4-5"), of(models=NAMED))
    assert (names(route), route.above) == (["hosted"], {"hosted"})


def test_where_all_that_can_serve_is_dearer_the_cheapest_serves_and_is_marked(decide: Decide) -> None:
    seen = request(EASY, model="gpt-5-mini", needs=frozenset({"tools"}))
    route = decide(seen, of(models=NAMED))
    assert names(route) == ["large", "hosted"]
    done = record(seen, of(models=NAMED))
    done.route = route
    assert done.attempt(LARGE).above_ceiling
    assert not done.attempt(SMALL).above_ceiling


def test_attempts_below_the_ceiling_are_not_marked(decide: Decide, fleet: Fleet) -> None:
    seen = request(HARD, model="large")
    done = record(seen, of(models=NAMED))
    done.route = decide(seen, of(models=NAMED))
    assert [done.attempt(each).above_ceiling for each in done.route.backends] == [False, False, True]


def test_a_strategy_of_two_stays_below_the_ceiling(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> None:
    def decided(usd: str) -> Route:
        small = backend("small", "small", usd, capabilities={"logprobs"})
        router = Router(lambda: grader, catalogue, fleet, [small, LARGE])
        return router.decide(request(EASY), of(models={"auto": {"quality": 0.5}}), ContextEstimate(50, 50))

    assert decided("0.1").escalate_to is LARGE
    dear = decided("0.9")  # and 25 % of answers are expected to be asked for again, at 1
    assert names(dear) == ["small", "large"]
    assert dear.escalate_to is None


CACHED = PriceEntry(input=Decimal(3), cached_input=Decimal("0.3"), output=Decimal(15))
SONNET = backend("sonnet", "hosted", model="other-model").model_copy(update={"price": CACHED})
COLD = backend("cold", "hosted", "2", model="one-more")


def test_a_model_that_is_no_backend_is_priced_as_if_it_had_been_asked_all_along(
    grader: Grader, catalogue: PriceBook, fleet: Fleet
) -> None:
    router = Router(lambda: grader, catalogue, fleet, [SONNET, COLD])
    who, asked = of(models={"gpt-4o": "auto"}), request(EASY, model="gpt-4o", controls=Controls(session="s"))

    def decided() -> Route:
        return router.decide(asked, who, ContextEstimate(12_800, 12_800))

    first = decided()
    assert first.ceiling_pico == 12_800 * 2_500_000 + 100 * 10_000_000
    assert (names(first)[0], first.above) == ("cold", {"sonnet"})
    done = record(asked, who)
    done.route = Route((SONNET,), "test", prefix=first.prefix)
    attempt = done.attempt(SONNET)
    attempt.outcome, attempt.usage = "ok", Usage(12_800)
    router.learn(done)
    then = decided()
    assert then.ceiling_pico == 12_800 * 1_250_000 + 100 * 10_000_000
    assert (names(then)[0], then.above) == ("sonnet", {"cold"})


def test_a_fallback_that_took_over_a_tool_loop_gives_it_back(
    grader: Grader, catalogue: PriceBook, fleet: Fleet
) -> None:
    router = Router(lambda: grader, catalogue, fleet, ALL)
    turns = [Turn(0, "user", EASY), Turn(1, "assistant", "", calls=("c",)), Turn(2, "tool", "1", results=("c",))]
    who = of(models={"large": {"candidates": ["large", "hosted"]}})
    asked = request(model="large", turns=turns, needs=frozenset({"tools"}))
    fleet.down = {"large"}
    route = router.decide(asked, who, ContextEstimate(50, 50))
    assert names(route) == ["hosted"]
    done = record(asked, who)
    done.route, done.finish = route, "tool_calls"
    attempt = done.attempt(HOSTED)
    attempt.outcome, attempt.usage = "ok", Usage(50)
    router.learn(done)
    fleet.down = set()
    assert names(router.decide(asked, who, ContextEstimate(50, 50))) == ["large", "hosted"]


MODELS = ["gpt-4o", "gpt-5-nano", "claude-haiku-4-5", "claude-opus-4-1", "b0", "b3", "auto", "own-name"]


@pytest.mark.parametrize("seed", range(20))
def test_over_random_fleets_sessions_and_failures_no_call_is_expected_to_be_dearer(
    grader: Grader, catalogue: PriceBook, fleet: Fleet, seed: int
) -> None:
    """Unless all that is not dearer has failed or cannot serve."""
    dice = random.Random(seed)
    tools = frozenset({"tools"})
    backends = []
    for number in range(5):
        usd = Decimal(dice.choice(["0.05", "0.2", "1", "2.5", "3", "8"]))
        price = PriceEntry(input=usd, cached_input=usd / 10, output=usd * 4)
        known = {"price": price, "capabilities": dice.choice([tools, frozenset()])}
        tier = dice.choice(["small", "large", "hosted"])
        backends.append(backend(f"b{number}", tier, region="eu").model_copy(update=known))
    router = Router(lambda: grader, catalogue, fleet, backends)
    rule: dict[str, Any] = {"quality": dice.choice([0.5, 0.9, 0.95]), "reference": dice.choice([None, "b1", "b2"])}
    who = of(models={"auto": rule, **{name: rule for name in MODELS if name != "auto"}})
    for _ in range(40):
        fleet.down = {each.name for each in backends if dice.random() < 0.15}
        model, session = dice.choice(MODELS), dice.choice("abc")
        needs = tools if dice.random() < 0.3 and any(each.capabilities for each in backends) else frozenset()
        asked = request(dice.choice([EASY, HARD]), model=model, needs=needs, controls=Controls(session=session))
        tokens = dice.choice([50, 9_000])
        route = router.decide(asked, who, ContextEstimate(tokens, tokens))
        costs = {one.backend: one.cost_pico or 0 for one in route.considered}
        able = [one for one in route.considered if not one.excluded]
        ceiling = route.ceiling_pico
        assert ceiling is not None
        assert route.above == {name for name, cost in costs.items() if cost > ceiling}
        first = route.backends[0].name
        assert costs[first] <= ceiling or (
            all(costs[one.backend] > ceiling for one in able)
            and costs[first] == min(costs[one.backend] for one in able)
        )
        cheap = [each.name in route.above for each in route.backends]
        assert cheap == sorted(cheap)
        if route.escalate_to is not None:
            assert costs[first] <= ceiling
            assert costs[route.escalate_to.name] <= ceiling
        done = record(asked, who)
        done.route = route
        attempt = done.attempt(dice.choice(route.backends))
        attempt.outcome, attempt.usage = "ok", Usage(tokens)
        router.learn(done)


# -- names


@pytest.mark.parametrize(
    ("model", "quality"),
    [("claude-opus-4-5", 0.7), ("claude-sonnet-5", 0.8), ("claude-opus-mine", 0.9), ("gpt-5", 0.6), ("gpt-5[1m]", 0.6)],
)
def test_a_pattern_stands_for_the_names_that_fit_it(model: str, quality: float) -> None:
    rules = {"claude-*": 0.8, "claude-opus-*": 0.7, "claude-opus-mine": 0.9, "*": 0.6}
    policy = Policy(team="a", models={name: {"quality": quality} for name, quality in rules.items()})
    rule = policy.rule(model)
    assert not isinstance(rule, str | None)
    assert rule.quality == quality


def test_a_pattern_does_not_catch_auto_nor_what_an_alias_leads_to() -> None:
    policy = Policy(team="a", models={"*": "small", "best": "claude-opus"})
    assert not isinstance(policy.rule("auto"), str)
    assert policy.rule("best") == "claude-opus"
    assert policy.rule("small") is None  # the backend itself
    assert Policy(team="a", models={"claude-*": "auto"}).rule("gpt-4o") is None


def test_an_alias_that_leads_back_to_its_pattern_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="leads back"):
        Policy(team="a", models={"a*": "b", "b": "a*"})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("claude-sonnet-4-5", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4.5", True),
        ("claude-sonnet-4-5", "claude-sonnet-4-5@20250929", True),
        ("claude-opus-4-5", "claude-opus-4-5[1m]", True),
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("deepseek-v3", "deepseek-v2", False),
        ("qwen3:8b", "qwen3:32b", False),
    ],
)
def test_the_same_model_is_known_under_the_names_of_several_providers(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) is same


def test_a_regional_price_of_the_named_model_is_its_price(catalogue: PriceBook) -> None:
    regional = backend("eu", "hosted", "3.3", model="eu.anthropic.claude-sonnet-4-5-20250929-v1:0")
    named = named_model("claude-sonnet-4-5", [SMALL, regional], catalogue)
    assert named is not None
    assert named.backends == (regional,)


def test_a_version_with_another_price_is_another_model(catalogue: PriceBook) -> None:
    old = backend("old", "hosted", "5", model="gpt-4o-2024-05-13")
    named = named_model("gpt-4o", [SMALL, old], catalogue)
    assert named is not None
    assert named.backends == ()
    assert named_model("mine", [SMALL, old], catalogue) is None


def test_a_named_model_without_a_price_keeps_higher_tiers_from_serving(
    grader: Grader, catalogue: PriceBook, fleet: Fleet
) -> None:
    free = backend("free", "small", model="free-model")
    router = Router(lambda: grader, catalogue, fleet, [free, LARGE, HOSTED])
    route = router.decide(request(HARD, model="free"), of(models={"free": {}}), ContextEstimate(50, 50))
    assert (names(route)[0], route.above, route.ceiling_pico) == ("free", {"large", "hosted"}, None)
    assert not Ceiling(None, 0).exceeded_by(Candidate(free))
