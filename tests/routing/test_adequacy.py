from __future__ import annotations

import numpy as np
import pytest

from gateway.domain.backend import Backend
from gateway.routing.difficulty.adequacy import Adequacy, gap
from gateway.routing.difficulty.weights_file import Curves
from tests.routing.conftest import HOSTED, LARGE, SMALL, backend

MINI = backend("mini", "hosted", "0.15")
OTHER_LARGE = backend("other-large", "large", "0.5")
TWIN = backend("twin", "hosted", "1", model="hosted-model")

CURVES = Curves(
    np.array([[1.0, -0.5], [2.0, -0.1]]),
    np.array([0.0, 0.05, 0.1, 0.5]),
    np.array([[-30.0, -0.5, 0.0, 30.0], [-30.0, 0.5, 1.0, 30.0]]),
)


@pytest.mark.parametrize(
    ("candidate", "reference", "costs", "wanted"),
    [
        (SMALL, LARGE, (1, 10), "below"),
        (SMALL, HOSTED, (1, 30), "below"),
        (LARGE, HOSTED, (10, 30), "near"),
        (LARGE, OTHER_LARGE, (10, 500), "equal"),  # the operator says that they are of one tier
        (HOSTED, LARGE, (30, 10), "equal"),
        (MINI, HOSTED, (29, 30), "equal"),
        (MINI, HOSTED, (10, 30), "near"),
        (MINI, HOSTED, (1, 30), "below"),
        (MINI, HOSTED, (None, 30), "equal"),
        (TWIN, HOSTED, (1, 300), "equal"),  # the same model elsewhere
        (HOSTED, HOSTED, (30, 30), "equal"),
    ],
)
def test_the_gap_follows_from_tier_and_between_hosted_ones_from_cost(
    candidate: Backend, reference: Backend, costs: tuple[int | None, int | None], wanted: str
) -> None:
    assert gap(candidate, reference, *costs) == wanted


def test_adequacy_falls_with_difficulty_and_rises_with_strength() -> None:
    adequacy = Adequacy(CURVES)
    for difficulty in (0.1, 0.5, 0.9):
        assert adequacy.of("below", difficulty) < adequacy.of("near", difficulty) < adequacy.of("equal", difficulty)
    assert adequacy.of("below", 0.9) < adequacy.of("below", 0.5) < adequacy.of("below", 0.1)
    assert adequacy.of("below", 0.5) == pytest.approx(1 / (1 + np.exp(-1.0)))
    assert adequacy.of("equal", 0.99) == 1.0


@pytest.mark.parametrize(
    ("kind", "difficulty", "loss", "wanted"),
    [
        ("below", 0.3, 0.05, True),
        ("below", 0.45, 0.05, False),
        ("below", 0.45, 0.1, True),
        ("below", 0.3, 0.049, False),
        ("below", 0.3, 1 - 0.95, True),  # 0.05 and a rounding error
        ("near", 0.6, 0.05, True),
        ("near", 0.999, 0.5, True),
        ("below", 0.000001, 0.0, False),
        ("equal", 0.999, 0.0, True),
    ],
)
def test_what_may_be_lost_decides_how_hard_it_may_be(kind: str, difficulty: float, loss: float, wanted: bool) -> None:
    assert Adequacy(CURVES).enough(kind, difficulty, loss) is wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("difficulty", [0.0, 1.0])
def test_the_ends_of_the_scale_are_numbers_too(difficulty: float) -> None:
    assert 0 < Adequacy(CURVES).of("below", difficulty) < 1
