"""Requests from which the grader abstains are decided by their traffic class, as far as comparisons have opened it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.domain.request import Controls, Turn
from gateway.domain.routing.class_trial import ClassTrial, TrialKey
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from tests.routing.conftest import HOSTED, LARGE, SPANISH, Fleet, backend, record, request, tenant

MIDDLE = backend("middle", "large", "0.2", capabilities={"tools"}, region="eu", window_tokens=32768)
TRIALS = {"share": 0.05, "classes": 0.5}
RULE = {"candidates": ["middle", "hosted"], "reference": "hosted", "quality": 0.9}
TOOLS: dict[str, Any] = {"needs": frozenset({"tools"})}
LOOP = [
    Turn(0, "user", "¿Qué tiempo hace en Madrid y en Sevilla?"),
    Turn(1, "assistant", "", calls=("c1",)),
    Turn(2, "tool", "24 grados", results=("c1",)),
]


@dataclass
class Known:
    """Implements ClassTrials."""

    trials: dict[tuple[str, str], ClassTrial] = field(default_factory=dict)
    """(Class, backend) → its trial."""
    asked: list[TrialKey] = field(default_factory=list)

    def find(self, key: TrialKey) -> ClassTrial | None:
        self.asked.append(key)
        return self.trials.get((key.traffic_class, key.backend))


@pytest.fixture
def known() -> Known:
    return Known()


@pytest.fixture
def router(grader: Grader, catalogue: PriceBook, known: Known) -> Router:
    return Router(lambda: grader, catalogue, Fleet(), [MIDDLE, LARGE, HOSTED], trials=known)


def who(rule: dict[str, Any] = RULE, trials: dict[str, Any] = TRIALS, **more: Any) -> Any:
    return tenant(models={"auto": rule}, trials=trials, **more)


def decide(router: Router, text: str = SPANISH, session: str = "", **changes: Any) -> Route:
    team = changes.pop("who", None) or who()
    return router.decide(request(text, **changes), team, ContextEstimate(50, 50), session)


OPEN = ClassTrial(0.9, stage=3, why="1.00 as good over 80 comparisons")


def test_an_unknown_class_goes_to_the_reference_and_names_the_backend_to_compare(router: Router) -> None:
    route = decide(router)
    assert route.backends[0] is HOSTED
    assert route.by_class is not None
    assert route.by_class.key == TrialKey("search", "es/text/opening", "middle", "hosted", 0.9)
    assert "class es/text/opening: middle was not compared yet" in route.reason


def test_an_open_class_goes_to_the_cheaper_backend_and_the_reason_has_the_figures(router: Router, known: Known) -> None:
    known.trials["es/text/opening", "middle"] = OPEN
    route = decide(router)
    assert [each.name for each in route.backends] == ["middle", "hosted"]
    assert route.reason == ("class es/text/opening: middle serves 100% of sessions (1.00 as good over 80 comparisons)")
    assert decide(router, "¿Qué hora es en Lima, y en la ciudad de Bogotá?", **TOOLS).backends[0] is HOSTED


def test_without_the_setting_no_class_is_looked_up(router: Router, known: Known) -> None:
    known.trials["es/text/opening", "middle"] = OPEN
    route = decide(router, who=who(trials={"share": 1.0}))
    assert (route.backends[0], route.by_class, known.asked) == (HOSTED, None, [])


def test_what_the_grader_knows_is_not_decided_by_class(router: Router, known: Known) -> None:
    assert decide(router, "What is the capital of France?").by_class is None
    assert known.asked == []


@pytest.mark.parametrize("stage", [1, 2])
def test_a_partly_open_class_serves_whole_sessions(router: Router, known: Known, stage: int) -> None:
    known.trials["es/text/opening", "middle"] = ClassTrial(0.9, stage=stage)
    first = {}
    for number in range(400):
        first[number] = decide(router, session=f"s{number}").backends[0]
        assert decide(router, session=f"s{number}").backends[0] is first[number]
    served = sum(each is MIDDLE for each in first.values()) / len(first)
    share = ClassTrial(0.9, stage=stage).share
    assert share / 2 < served < share * 2


def test_sessions_of_a_smaller_share_stay_when_the_share_grows(router: Router, known: Known) -> None:
    def served(stage: int) -> set[int]:
        known.trials["es/text/opening", "middle"] = ClassTrial(0.9, stage=stage)
        return {n for n in range(200) if decide(router, session=f"s{n}").backends[0] is MIDDLE}

    assert served(1) < served(2) < served(3)


def test_a_loop_of_tools_begins_only_where_its_results_may_be_answered_too(router: Router, known: Known) -> None:
    known.trials["es/tools/opening", "middle"] = OPEN
    assert decide(router, LOOP[0].text, **TOOLS).backends[0] is MIDDLE
    known.trials["es/tools/after_tool", "middle"] = ClassTrial(0.9)
    assert decide(router, LOOP[0].text, **TOOLS).backends[0] is HOSTED
    known.trials["es/tools/after_tool", "middle"] = OPEN
    assert decide(router, LOOP[0].text, **TOOLS).backends[0] is MIDDLE


async def test_a_tool_loop_stays_where_it_began_when_the_class_changes(router: Router, known: Known) -> None:
    async def serve(turns: list[Turn], finish: str) -> str:
        asked = request(turns=turns, controls=Controls(session="one"), **TOOLS)
        seen = record(asked, who())
        route = await router.route(asked, who(), ContextEstimate(50, 50), seen)
        attempt = seen.attempt(route.backends[0])
        attempt.outcome, seen.finish = "ok", finish
        attempt.estimate_usage(10)
        router.learn(seen)
        return attempt.backend.name

    assert await serve(LOOP[:1], "tool_calls") == "hosted"
    for step in ("opening", "after_tool", "follow_up"):
        known.trials[f"es/tools/{step}", "middle"] = OPEN
    assert await serve(LOOP, "tool_calls") == "hosted"
    assert await serve([*LOOP, *[Turn(3, "assistant", "24"), Turn(4, "user", "¿Y mañana, en la costa?")]], "stop") == (
        "middle"
    )
    assert await serve(LOOP[:1], "tool_calls") == "middle"
    known.trials.clear()
    assert await serve(LOOP, "stop") == "middle"
    assert await serve(LOOP[:1], "stop") == "hosted"


def test_a_refused_backend_is_followed_by_the_next_dearer_one(router: Router, known: Known) -> None:
    team = who({**RULE, "candidates": ["middle", "large", "hosted"]})
    known.trials["es/text/opening", "middle"] = ClassTrial(0.9, waiting=True)
    by_class = decide(router, who=team).by_class
    assert by_class is not None
    assert by_class.key.backend == "large"
    known.trials["es/text/opening", "large"] = OPEN
    assert decide(router, who=team).backends[0] is LARGE


def test_observe_mode_serves_the_reference_and_records_the_decision(router: Router, known: Known) -> None:
    known.trials["es/text/opening", "middle"] = OPEN
    route = decide(router, who=who(mode="observe"))
    assert (route.backends[0], route.observed) == (HOSTED, MIDDLE)


def test_a_backend_above_the_ceiling_is_not_compared(router: Router) -> None:
    team = who({**RULE, "candidates": ["middle", "hosted"], "reference": "middle"})
    assert decide(router, who=team).by_class is None
