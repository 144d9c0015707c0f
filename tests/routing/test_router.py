from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.money.usage import Usage
from gateway.domain.request import Controls, Turn
from gateway.domain.routing.route import ContextEstimate
from gateway.errors import BadRequest, ContextTooLong, Forbidden, NoAdequateBackend, NoBackend, UnknownModel
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router, share_of
from tests.fakes.clock import StoppedClock
from tests.routing.conftest import (
    EASY,
    HARD,
    HOSTED,
    LARGE,
    SMALL,
    SPANISH,
    Decide,
    Fleet,
    backend,
    record,
    request,
    tenant,
)

TWO = {"auto": {"candidates": ["small", "large"]}}


class EveryOther:
    """A sampler that holds out what it is told to."""

    def __init__(self, held: bool) -> None:
        self.held = held

    def holdout(self, request: Any) -> bool:
        return self.held

    def offer(self, request: Any, record: Any, answer: Any) -> None:
        raise AssertionError("the router offers nothing")


@pytest.mark.parametrize("model", ["auto", "either"])
def test_vectors_are_never_a_choice_among_models(decide: Decide, model: str) -> None:
    asked = request(EASY, model=model, dialect="openai_embeddings", one_model=True)
    with pytest.raises(BadRequest, match="Name one backend: small, large") as caught:
        decide(asked, tenant(models={"either": ["small", "large"]}))
    assert caught.value.param == "model"
    route = decide(request(EASY, model="mine", one_model=True), tenant(models={"mine": ["small"]}))
    assert route.backends == (SMALL,)


async def test_the_record_learns_route_and_difficulty(router: Router, grader: Grader) -> None:
    asked = request(EASY)
    seen = record(asked)
    route = await router.route(asked, tenant(), ContextEstimate(50, 50), seen)
    assert seen.route is route
    assert seen.difficulty == grader.grade(EASY).difficulty
    assert route.grade == grader.grade(EASY)


def test_easy_goes_to_the_small_one_and_hard_to_the_reference(decide: Decide) -> None:
    easy, hard = decide(request(EASY), tenant(models=TWO)), decide(request(HARD), tenant(models=TWO))
    assert [each.name for each in easy.backends] == ["small", "large"]
    assert [each.name for each in hard.backends] == ["large", "small"]
    assert easy.reference is hard.reference is LARGE


def test_what_the_classifier_does_not_know_goes_to_the_reference(decide: Decide) -> None:
    route = decide(request(SPANISH))
    assert route.backends[0] is HOSTED
    assert route.grade
    assert route.grade.abstained


def test_everything_considered_is_told(decide: Decide) -> None:
    route = decide(request(EASY, needs=frozenset({"logprobs"})), tenant(models={"auto": {"quality": 0.9}}))
    small, large, hosted = route.considered
    assert (small.backend, small.excluded) == ("small", "")
    assert (large.excluded, hosted.excluded) == ("lacks logprobs", "lacks logprobs")
    assert small.cost_pico == 50 * 100_000 + 100 * 400_000
    both = decide(request(EASY), tenant(models=TWO)).considered
    assert both[0].adequacy is not None
    assert 0.5 < both[0].adequacy < 1


def test_expected_tokens_are_told(decide: Decide) -> None:
    route = decide(request(EASY, parallel=3), least=70)
    assert (route.input_tokens, route.output_tokens) == (70, 300)


def test_a_single_candidate_is_not_graded(decide: Decide) -> None:
    route = decide(request(EASY), tenant(models={"auto": ["large"]}))
    assert (route.backends, route.grade) == ((LARGE,), None)


async def test_a_decision_without_a_grade_leaves_no_difficulty(router: Router) -> None:
    asked = request(EASY, model="large")
    seen = record(asked)
    await router.route(asked, tenant(), ContextEstimate(50, 50), seen)
    assert seen.difficulty is None


def test_a_backend_asked_for_by_name_serves_alone(decide: Decide) -> None:
    route = decide(request(HARD, model="small"))
    assert (route.backends, route.grade, route.escalate_to) == ((SMALL,), None, None)
    assert route.reason == "asked for by name"


def test_a_backend_asked_for_by_name_is_left_to_refuse_what_it_cannot_do(decide: Decide) -> None:
    assert decide(request(HARD, model="small", needs=frozenset({"tools"}))).backends == (SMALL,)


def test_a_resting_backend_asked_for_by_name_is_asked_all_the_same(decide: Decide, fleet: Fleet) -> None:
    well = decide(request(HARD, model="small"))
    fleet.down = {"small"}
    resting = decide(request(HARD, model="small"))
    assert (resting.backends, resting.considered) == (well.backends, well.considered)
    assert resting.considered[0].cost_pico


def test_a_backend_asked_for_by_name_that_the_policy_rules_out_is_refused(decide: Decide, router: Router) -> None:
    with pytest.raises(NoAdequateBackend, match="its tier is small"):
        decide(request(HARD, model="small", controls=Controls(tier="large")))
    with pytest.raises(ContextTooLong):
        decide(request(HARD, model="small"), least=5000)
    assert (router.stats()["refused"], router.stats()["routed"]) == (2, 0)


def test_the_same_model_elsewhere_stands_by_cheapest_first(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> None:
    twin = backend("twin", "hosted", "2", model="hosted-model")
    router = Router(lambda: grader, catalogue, fleet, [HOSTED, twin])
    route = router.decide(request(model="hosted-model"), tenant(), ContextEstimate(10, 10))
    assert route.backends == (twin, HOSTED)


def test_a_tier_asked_for_is_obeyed_without_grading(decide: Decide) -> None:
    route = decide(request(HARD, controls=Controls(tier="small")))
    assert (route.backends, route.grade) == ((SMALL,), None)
    assert route.reason == "the request asks for tier small"
    assert [each.excluded != "" for each in route.considered] == [False, True, True]


def test_observing_serves_the_reference_and_tells_the_decision(decide: Decide) -> None:
    route = decide(request(EASY), tenant(mode="observe", models=TWO))
    assert (route.backends[0], route.observed) == (LARGE, SMALL)
    assert route.backends == (LARGE, SMALL)
    assert route.escalate_to is None
    assert "observe" in route.reason


def test_observing_serves_the_model_that_the_app_asked_for(decide: Decide) -> None:
    models = {"hosted-model": "auto", "auto": {"reference": "large", "candidates": ["small", "large", "hosted"]}}
    route = decide(request(EASY, model="hosted-model"), tenant(mode="observe", models=models))
    assert (route.backends[0], route.reference) == (HOSTED, LARGE)
    assert route.observed is SMALL


def test_the_share_decides_who_is_routed_and_sticks_to_the_session(decide: Decide) -> None:
    half = tenant(share="50%", models=TWO)
    sides = {name: decide(request(EASY), half, session=name).observed for name in map(str, range(200))}
    observed = sum(side is not None for side in sides.values())
    assert 60 < observed < 140
    assert sides == {name: decide(request(EASY), half, session=name).observed for name in sides}
    assert all((side is None) == (share_of(name) < 0.5) for name, side in sides.items())


def test_without_a_session_the_request_decides(decide: Decide) -> None:
    nobody = tenant(share=0, models=TWO)
    assert decide(request(EASY), nobody).observed is SMALL
    controls = Controls(session="abc")
    some = tenant(share=share_of("abc"), models=TWO)
    assert decide(request(EASY, controls=controls), some).observed is SMALL


@pytest.mark.parametrize(("held", "served"), [(True, LARGE), (False, SMALL)])
def test_a_held_out_request_goes_to_the_reference(
    grader: Grader, catalogue: PriceBook, fleet: Fleet, held: bool, served: object
) -> None:
    router = Router(lambda: grader, catalogue, fleet, [SMALL, LARGE], sampler=EveryOther(held))
    route = router.decide(request(EASY), tenant(), ContextEstimate(50, 50))
    assert route.backends[0] is served
    assert route.observed is (SMALL if held else None)


@pytest.mark.parametrize(
    ("changes", "rule", "wanted"),
    [
        ({}, {}, LARGE),
        ({"stream": True}, {}, LARGE),
        ({"parallel": 2}, {}, None),
        ({}, {"escalate": False}, None),
        ({}, {"candidates": ["small"]}, None),
    ],
)
def test_an_unsure_small_answer_may_be_taken_back(
    decide: Decide, changes: dict[str, Any], rule: dict[str, Any], wanted: object
) -> None:
    models = {"auto": {"candidates": ["small", "large"], "confidence": 0.7, **rule}}
    route = decide(request(EASY, **changes), tenant(models=models))
    assert route.backends[0] is SMALL
    assert route.escalate_to is wanted
    assert route.escalate_below == (0.7 if wanted else 0.0)


def test_without_logprobs_nothing_is_taken_back(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> None:
    mute = backend("mute", "small", "0.1")
    router = Router(lambda: grader, catalogue, fleet, [mute, LARGE])
    route = router.decide(request(EASY), tenant(), ContextEstimate(50, 50))
    assert (route.backends[0], route.escalate_to) == (mute, None)


def test_a_resting_reference_is_replaced_and_the_answer_still_comes(decide: Decide, fleet: Fleet) -> None:
    fleet.down = {"hosted"}
    route = decide(request(HARD))
    assert route.backends == (LARGE, SMALL)
    assert route.considered[2].excluded == "resting after 5 failures"


def test_tools_go_to_whoever_has_them(decide: Decide) -> None:
    route = decide(request(EASY, needs=frozenset({"tools"})))
    assert route.backends == (HOSTED, LARGE)


def test_agent_contexts_go_to_the_reference(decide: Decide) -> None:
    turns = [Turn(0, "user", EASY), Turn(1, "assistant", "", calls=("c",)), Turn(2, "tool", "Paris", results=("c",))]
    assert decide(request(turns=turns)).backends[0] is HOSTED


async def test_without_its_grader_the_reference_answers_until_it_can_be_loaded(
    grader: Grader, catalogue: PriceBook, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0

    def load() -> Grader:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ImportError("half a library")
        return grader

    clock = StoppedClock()
    router = Router(load, catalogue, fleet, [SMALL, LARGE, HOSTED], now=clock.monotonic)
    easy = request()
    for _ in range(2):
        seen = record(easy)
        route = await router.route(easy, tenant(), ContextEstimate(10, 10), seen)
        assert route.backends[0] is HOSTED
        assert route.reason == "nothing was graded: reference hosted"
        assert seen.degraded == {"grader"}
    assert asked == 1
    assert "half a library" in caplog.text
    clock.pass_(30)
    seen = record(easy)
    route = await router.route(easy, tenant(), ContextEstimate(10, 10), seen)
    assert route.grade is not None
    assert not seen.degraded
    assert asked == 2


def test_with_nothing_configured_the_remedy_is_told(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> None:
    with pytest.raises(NoBackend, match=r"gateway\.yaml.*OPENAI_API_KEY") as caught:
        Router(lambda: grader, catalogue, fleet, []).decide(request(model="anything"), tenant(), ContextEstimate(1, 1))
    assert type(caught.value) is NoBackend


def test_an_unknown_model_is_answered_with_what_exists(decide: Decide) -> None:
    with pytest.raises(UnknownModel, match="auto, small, large, hosted"):
        decide(request(model="gpt-9"))


def test_a_request_too_long_for_every_window_says_so(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> None:
    router = Router(lambda: grader, catalogue, fleet, [SMALL, LARGE])
    with pytest.raises(ContextTooLong, match="32768"):
        router.decide(request(), tenant(), ContextEstimate(90000, 80000))
    assert router.stats()["refused"] == 1


def test_a_data_rule_that_excludes_all_is_forbidden(decide: Decide) -> None:
    with pytest.raises(Forbidden, match="forbids hosted"):
        decide(request(model="hosted"), tenant(data={"hosted": "forbidden"}))


def test_when_all_are_resting_they_are_better_than_nobody(decide: Decide, fleet: Fleet) -> None:
    fleet.down = {"small", "large", "hosted"}
    assert {each.name for each in decide(request()).backends} == {"small", "large", "hosted"}
    with pytest.raises(NoAdequateBackend, match="small"):
        decide(request(needs=frozenset({"json_schema"})))


def test_prompts_stay_home_when_the_policy_says_so(decide: Decide) -> None:
    route = decide(request(HARD), tenant(data={"hosted": "forbidden"}))
    assert HOSTED not in route.backends
    assert route.backends[0] is LARGE


def test_learned_lengths_change_the_expected_cost(router: Router) -> None:
    asked = request(max_output_tokens=None)
    before = router.decide(asked, tenant(), ContextEstimate(50, 50)).output_tokens
    seen = record(asked)
    attempt = seen.attempt(LARGE)
    attempt.usage, attempt.outcome = Usage(10, output_tokens=2000), "ok"
    router.learn(seen)
    assert router.decide(asked, tenant(), ContextEstimate(50, 50)).output_tokens > before
    assert router.stats()["lengths_known"] == 1


def test_decisions_are_counted(router: Router) -> None:
    for text in (EASY, HARD, SPANISH):
        router.decide(request(text), tenant(models=TWO), ContextEstimate(50, 50))
    router.decide(request(EASY), tenant(mode="observe", models=TWO), ContextEstimate(50, 50))
    stats = router.stats()
    assert (stats["routed"], stats["abstained"], stats["observed"], stats["escalatable"]) == (4, 1, 1, 1)
    assert stats["to_reference"] == 3


@pytest.mark.parametrize(
    ("policy", "asked", "times"),
    [
        ({}, {"needs": frozenset({"tools"})}, 1.25),
        ({}, {"raw": b'{"cache_control": {"type": "ephemeral"}}'}, 1.25),
        ({}, {}, 1.0),
        ({"context": {"prompt_cache": "client"}}, {"needs": frozenset({"tools"})}, 1.0),
        ({}, {"needs": frozenset({"tools"}), "controls": Controls(untouched=True)}, 1.0),
    ],
)
def test_a_prompt_that_will_be_marked_is_expected_to_cost_a_cache_write(
    policy: dict[str, Any], asked: dict[str, Any], times: float, grader: Grader, catalogue: PriceBook, fleet: Fleet
) -> None:
    price = PriceEntry.model_validate({"input": 1, "cache_write_5m": "1.25", "output": 0})
    address = "https://api.anthropic.com/v1"
    claude = Backend(name="claude", kind="anthropic", model="claude-sonnet-5", base_url=address, price=price)
    router = Router(lambda: grader, catalogue, fleet, [claude])
    route = router.decide(request(EASY, model="claude", **asked), tenant(**policy), ContextEstimate(9000, 9000), "s")
    assert route.considered[0].cost_pico == 9000 * 1_000_000 * times
