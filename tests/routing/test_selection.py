"""What a frontier promises, on points whose true quality is known."""

from __future__ import annotations

import numpy as np
import pytest

from gateway.routing.fit.selection import CONFIDENCE, Family, Point, promised, select
from gateway.routing.strategy.strategy import Strategy

COUNT = 400


def point(name: str, quality: float, usd: float, chance: np.random.Generator) -> Point:
    """What a strategy of this true quality reached on 400 prompts."""
    seen = (chance.random(COUNT) < quality).astype(np.float64)
    return Point(Strategy("", name, float(seen.mean()), usd, {}, ()), seen, np.full(COUNT, usd))


def test_the_best_of_many_equal_strategies_promises_less_than_it_showed() -> None:
    showed, kept = [], []
    for seed in range(10):
        chance = np.random.default_rng(seed)
        single = point("cheap", 0.6, 1e-5, chance)
        family = Family(tuple(point(f"{number}", 0.8, 1e-4, chance) for number in range(30)), CONFIDENCE)
        showed.append(select([single], [family])[-1].strategy.quality)
        kept.append(promised([single], [family])[-1].strategy.quality)
    assert np.mean(showed) > 0.83
    assert np.mean(kept) == pytest.approx(0.8, abs=0.015)


def test_what_was_hardly_chosen_keeps_its_promise() -> None:
    chance = np.random.default_rng(0)
    singles = [point("cheap", 0.5, 1e-5, chance), point("dear", 0.8, 1e-3, chance)]
    better = Family((point("better", 0.95, 1e-4, chance),), CONFIDENCE)
    before, after = select(singles, [better]), promised(singles, [better])
    assert [each.strategy.description for each in after] == ["cheap", "better"]
    for one, other in zip(before, after, strict=True):
        assert one.strategy.quality - 0.002 <= other.strategy.quality <= one.strategy.quality
        assert other.quality.mean() == pytest.approx(other.strategy.quality)


def test_the_same_points_promise_the_same_again() -> None:
    chance = np.random.default_rng(1)
    singles = [point(f"{number}", 0.7 + number / 50, 10.0 ** (number - 5), chance) for number in range(4)]
    one, other = promised(singles, [], seed=3), promised(singles, [], seed=3)
    assert [each.strategy.quality for each in one] == [each.strategy.quality for each in other]


def test_one_model_is_its_own_frontier() -> None:
    single = point("only", 0.7, 1e-4, np.random.default_rng(2))
    assert promised([single], []) == (single,)
