from __future__ import annotations

import numpy as np
import pytest

from gateway.domain.backend import Backend
from gateway.domain.routing.route import Grade
from gateway.routing.candidates import Candidate, Cause
from gateway.routing.ceiling import Ceiling
from gateway.routing.decision import cheaper, choose
from gateway.routing.difficulty.adequacy import Adequacy
from gateway.routing.difficulty.weights_file import Curves
from tests.routing.conftest import HOSTED, LARGE, SMALL, backend

ADEQUACY = Adequacy(
    Curves(
        np.array([[1.2, -0.4], [2.0, -0.1]]),
        np.array([0.0, 0.025, 0.05, 0.1, 0.5]),
        np.array([[-30.0, -1.0, -0.5, 0.0, 30.0], [-30.0, 0.2, 0.5, 1.0, 30.0]]),
    )
)
"""Difficulties up to .27, .38 and .5 are for small at losses of 2.5, 5 and 10 %; up to .55, .62 and .73 for large."""
SIMULATED = backend("pretend", "large", kind="simulated", base_url="")


def at(backend: Backend, cost: int | None, excluded: str = "", cause: Cause = "health") -> Candidate:
    return Candidate(backend, excluded, cause if excluded else "", cost)


THREE = [at(SMALL, 1), at(LARGE, 10), at(HOSTED, 40)]


def reference_of(candidates: list[Candidate], named: str | None) -> Candidate:
    return choose(candidates, named, None, 0.95, None).reference


def _order(
    candidates: list[Candidate],
    difficulty: float | None,
    quality: float = 0.95,
    named: str | None = None,
    ceiling: Ceiling | None = None,
) -> list[str]:
    grade = None if difficulty is None else Grade(difficulty)
    choice = choose(candidates, named, grade, quality, ADEQUACY, ceiling=ceiling)
    return [each.backend.name for each in choice.order]


@pytest.mark.parametrize(
    ("difficulty", "quality", "order"),
    [
        (0.2, 0.95, ["small", "large", "hosted"]),  # both are adequate: the cheapest, then the next
        (0.3, 0.95, ["large", "hosted", "small"]),  # 5 % are split among two kinds of weaker candidates
        (0.3, 0.90, ["small", "large", "hosted"]),
        (0.6, 0.95, ["hosted", "large", "small"]),
        (0.9, 0.95, ["hosted", "large", "small"]),
        (0.01, 1.0, ["hosted", "large", "small"]),  # nothing may be worse
        (0.99, 0.0, ["small", "large", "hosted"]),
    ],
)
def test_the_cheapest_adequate_candidate_serves(difficulty: float, quality: float, order: list[str]) -> None:
    assert _order(THREE, difficulty, quality) == order


def test_with_one_weaker_kind_all_of_the_loss_is_its() -> None:
    assert _order([at(SMALL, 1), at(LARGE, 10)], 0.35) == ["small", "large"]
    assert _order(THREE, 0.35)[0] == "large"


def test_an_abstention_goes_to_the_reference() -> None:
    choice = choose(THREE, None, Grade(0.01, abstained=True), 0.5, ADEQUACY)
    assert choice.order[0].backend is HOSTED
    assert "outside the classifier's domain" in choice.reason
    assert choice.adequacies == {}


def test_without_a_grade_the_reference_serves() -> None:
    assert _order(THREE, None)[0] == "hosted"


@pytest.mark.parametrize("difficulty", [0.01, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("named", ["small", "large", "hosted"])
def test_nothing_dearer_than_the_reference_is_ever_chosen(difficulty: float, named: str) -> None:
    costs = {each.backend.name: each.cost_pico or 0 for each in THREE}
    assert costs[_order(THREE, difficulty, 0.5, named)[0]] <= costs[named]


def test_fallbacks_that_are_not_dearer_come_before_dearer_ones() -> None:
    assert _order(THREE, 0.99, named="large") == ["large", "small", "hosted"]


def test_the_default_reference_is_the_strongest_tiers_dearest() -> None:
    other = backend("other", "hosted", "1")
    assert reference_of([*THREE, at(other, 20)], None).backend is HOSTED
    assert reference_of([at(SMALL, 100), at(LARGE, 1)], None).backend is LARGE


def test_a_real_backend_is_the_reference_before_a_simulated_one_of_its_tier() -> None:
    assert reference_of([at(SIMULATED, None), at(LARGE, None)], None).backend is LARGE
    assert reference_of([at(SIMULATED, None), at(SMALL, 1)], None).backend is SIMULATED


def test_when_the_reference_cannot_serve_the_strongest_that_is_no_dearer_stands_in() -> None:
    down = [at(SMALL, 1), at(LARGE, 10), at(HOSTED, 40, "resting")]
    assert reference_of(down, None).backend is LARGE
    dearer = [at(SMALL, 1), at(LARGE, 10, "resting"), at(HOSTED, 40)]
    assert reference_of(dearer, "large").backend is SMALL
    alone = [at(LARGE, 10, "resting"), at(HOSTED, 40)]
    assert reference_of(alone, "large").backend is HOSTED


def test_excluded_candidates_are_in_no_order() -> None:
    assert _order([at(SMALL, 1, "resting"), *THREE[1:]], 0.1) == ["large", "hosted"]


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (at(SMALL, 1), at(LARGE, 2), True),
        (at(SMALL, 2), at(LARGE, 2), False),
        (at(SMALL, None), at(LARGE, 2), False),  # unpriced: at least as dear as the reference
        (at(SMALL, None), at(LARGE, None), True),  # tiers are all that is known
        (at(SMALL, 5), at(LARGE, None), True),
        (at(LARGE, 5), at(SMALL, None), False),
        (at(LARGE, 0), at(HOSTED, 1), True),
    ],
)
def test_only_what_is_surely_cheaper_counts_as_cheaper(one: Candidate, other: Candidate, wanted: bool) -> None:
    assert cheaper(one, other) is wanted


def test_an_unpriced_candidate_never_replaces_a_priced_reference() -> None:
    assert _order([at(SMALL, None), at(LARGE, 10)], 0.01, 0.5) == ["large", "small"]


def test_a_fleet_without_prices_is_ordered_by_tier() -> None:
    assert _order([at(SMALL, None), at(LARGE, None), at(HOSTED, None)], 0.2) == ["small", "large", "hosted"]


def test_of_two_that_cost_the_same_the_stronger_serves() -> None:
    twins = [at(SMALL, 1), at(LARGE, 1), at(HOSTED, 40)]
    assert _order(twins, 0.2)[0] == "large"


def test_an_equal_of_the_reference_needs_no_proof_of_adequacy() -> None:
    twin = backend("twin", "hosted", "1", model="hosted-model")
    assert _order([at(twin, 30), at(HOSTED, 40)], 0.99, 1.0) == ["twin", "hosted"]


def test_a_much_cheaper_hosted_model_must_prove_adequate() -> None:
    mini = backend("mini", "hosted", "0.15")
    assert _order([at(mini, 1), at(HOSTED, 40)], 0.35) == ["mini", "hosted"]
    assert _order([at(mini, 1), at(HOSTED, 40)], 0.45) == ["hosted", "mini"]
    assert _order([at(mini, 10), at(HOSTED, 40)], 0.45) == ["mini", "hosted"]


@pytest.mark.parametrize(
    ("candidates", "difficulty", "words"),
    [
        (THREE, 0.2, "small is the cheapest adequate one: 0.85 at difficulty 0.20"),
        (THREE, 0.9, "too hard for what is cheaper: reference hosted"),
        ([at(SMALL, 50), at(LARGE, 10)], 0.1, "nothing is known to be cheaper than the reference large"),
        ([at(SMALL, 1)], None, "small is the only candidate"),
    ],
)
def test_the_reason_says_what_decided(candidates: list[Candidate], difficulty: float | None, words: str) -> None:
    grade = None if difficulty is None else Grade(difficulty)
    assert words in choose(candidates, None, grade, 0.95, ADEQUACY).reason


@pytest.mark.parametrize(
    ("limit", "order"),
    [
        (40, ["hosted", "large", "small"]),
        (39, ["large", "small", "hosted"]),  # the strongest below the ceiling is the reference
        (1, ["small", "large", "hosted"]),
        (0, ["small", "large", "hosted"]),  # nothing is as cheap: the cheapest serves
    ],
)
def test_nothing_above_the_ceiling_serves_while_something_below_it_can(limit: int, order: list[str]) -> None:
    assert _order(THREE, 0.99, ceiling=Ceiling(limit)) == order
    assert _order(THREE, 0.99, named="hosted", ceiling=Ceiling(limit)) == order
    assert _order(THREE, None, ceiling=Ceiling(limit)) == order


def test_what_is_above_the_ceiling_is_the_last_fallback() -> None:
    other = backend("other", "hosted", "4")
    candidates = [at(other, 60), *THREE]
    assert _order(candidates, 0.99, named="large", ceiling=Ceiling(40)) == ["large", "small", "hosted", "other"]


def test_without_a_price_of_the_named_model_its_tier_is_the_ceiling() -> None:
    assert _order(THREE, 0.99, ceiling=Ceiling(None, 0))[0] == "small"
    assert _order(THREE, 0.99, ceiling=Ceiling(None, 1))[0] == "large"


def test_a_backend_without_a_price_is_not_known_to_be_above_the_ceiling() -> None:
    assert _order([at(SMALL, None), at(HOSTED, 40)], 0.99, ceiling=Ceiling(5)) == ["small", "hosted"]


def test_the_reason_says_that_the_ceiling_kept_the_reference_from_serving() -> None:
    choice = choose(THREE, "hosted", None, 0.95, ADEQUACY, ceiling=Ceiling(10))
    assert choice.reason.endswith("; hosted costs more than the model that the client named")
    assert "costs more" not in choose(THREE, "hosted", None, 0.95, ADEQUACY, ceiling=Ceiling(40)).reason


def test_a_reference_that_cannot_serve_is_still_the_ceiling() -> None:
    choice = choose([at(SMALL, 1), at(LARGE, 10, "resting"), at(HOSTED, 40)], "large", None, 0.95, ADEQUACY)
    assert choice.ceiling.cost_pico == 10
    assert [each.backend.name for each in choice.order] == ["small", "hosted"]
