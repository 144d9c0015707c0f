"""Each sentence is true: what it names, changed alone, changes the choice, and a little less does not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.domain.protocols import BackendState
from gateway.domain.request import Controls, Turn
from gateway.domain.routing.route import ContextEstimate, Route
from gateway.ledger.prices.price_book import PriceBook
from gateway.routing.counterfactual import boundary
from gateway.routing.difficulty.grader import Grader
from gateway.routing.router import Router
from tests.routing.conftest import EASY, HARD, HOSTED, LARGE, SMALL, SPANISH, Fleet, request, tenant

TWO: dict[str, Any] = {"candidates": ["small", "large"]}


def decide(router: Router, text: str, **rule: Any) -> Route:
    return router.decide(request(text), tenant(models={"auto": {**TWO, **rule}}), ContextEstimate(50, 50))


def sentences(route: Route) -> tuple[str, ...]:
    assert route.what_if is not None
    return route.what_if()


def number_in(told: tuple[str, ...], words: str) -> tuple[float, str]:
    """The number after `words` and the backend of the sentence that contains `words`."""
    pattern = re.compile(r"(\w+) would be chosen if .*" + re.escape(words) + r" ([\d.]+)(%?)")
    (found,) = [match for one in told if (match := pattern.match(one))]
    return float(found[2]) / (100 if found[3] else 1), found[1]


@pytest.fixture
def router(grader: Grader, catalogue: PriceBook, fleet: Fleet) -> Router:
    return Router(lambda: grader, catalogue, fleet, [SMALL, LARGE])


def test_the_quality_that_is_named_is_where_the_choice_changes(router: Router) -> None:
    easy = decide(router, EASY)
    assert easy.backends[0] is SMALL
    limit, other = number_in(sentences(easy), "required at least")
    assert other == "large"
    assert decide(router, EASY, quality=limit).backends[0] is LARGE
    assert decide(router, EASY, quality=limit - 0.002).backends[0] is SMALL
    hard = decide(router, HARD)
    assert hard.backends[0] is LARGE
    limit, other = number_in(sentences(hard), "required at most")
    assert other == "small"
    assert decide(router, HARD, quality=limit).backends[0] is SMALL
    assert decide(router, HARD, quality=limit + 0.002).backends[0] is LARGE


def test_the_difficulty_that_is_named_lies_between_easy_and_hard(router: Router, grader: Grader) -> None:
    from_easy, _ = number_in(sentences(decide(router, EASY)), "harder (difficulty")
    from_hard, other = number_in(sentences(decide(router, HARD)), "easier (difficulty")
    assert other == "small"
    assert grader.grade(EASY).difficulty < from_hard <= from_easy < grader.grade(HARD).difficulty
    assert from_easy - from_hard <= 0.002


def test_a_prompt_outside_what_is_known_is_told_as_that(router: Router) -> None:
    told = sentences(decide(router, SPANISH))
    limit, chosen = number_in(told, "in the grader's domain and its difficulty below")
    assert (0 < limit < 1, chosen) == (True, "small")


def test_a_price_that_would_change_it(router: Router) -> None:
    factor, other = number_in(sentences(decide(router, EASY)), "small cost")
    assert other == "large"
    assert factor == pytest.approx(10, rel=0.05)  # the large one costs ten times as much


def of_three(text: str) -> tuple[Any, Any, ContextEstimate]:
    return request(text), tenant(models={"auto": {"quality": 0.9}}), ContextEstimate(50, 50)


def test_who_could_not_be_asked_and_would_have_been(
    router: Router, fleet: Fleet, grader: Grader, catalogue: PriceBook
) -> None:
    fleet.down.add("small")
    resting = "resting after 5 failures"
    assert sentences(decide(router, EASY)) == (f"there would be a choice if small could be called ({resting})",)
    three = Router(lambda: grader, catalogue, fleet, [SMALL, LARGE, HOSTED])
    assert f"small would be chosen if small could be called ({resting})" in sentences(three.decide(*of_three(EASY)))
    assert not any("could be called" in one for one in sentences(three.decide(*of_three(HARD))))


def test_nothing_is_said_where_nothing_was_chosen(router: Router) -> None:
    assert router.decide(request(EASY, model="small"), tenant(), ContextEstimate(50, 50)).what_if is None


def test_no_prompt_is_kept_for_it(router: Router) -> None:
    asked = request(turns=[Turn(0, "user", EASY)], controls=Controls(session="secret-session"))
    route = router.decide(asked, tenant(models={"auto": TWO}), ContextEstimate(50, 50))
    assert route.what_if is not None
    held = repr(route.what_if.__self__) + repr(route.prefix)  # type: ignore[attr-defined]
    assert EASY not in held
    assert "secret-session" not in held


def test_a_boundary_is_the_first_one_on_the_way() -> None:
    def chosen(value: float) -> str:
        return "a" if value < 0.3 else "b" if value < 0.6 else "c"

    assert boundary(chosen, 0.0, 1.0) == (pytest.approx(0.3, abs=1e-3), "b")
    assert boundary(chosen, 1.0, 0.0) == (pytest.approx(0.6, abs=1e-3), "b")
    assert boundary(chosen, 0.0, 0.2) is None


def test_states_of_backends_are_left_alone(router: Router, fleet: Fleet) -> None:
    sentences(decide(router, EASY))
    assert fleet.state(SMALL) == BackendState(True)
