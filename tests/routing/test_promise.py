"""A part of the reference's quality is kept on prompts that the plan has not seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gateway.routing.fit.frontier import only
from gateway.routing.fit.selection import Point, with_doubts
from gateway.routing.strategy.hull import between
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import load_plan, save_plan
from gateway.routing.strategy.strategy import CAUTION, Strategy

COUNT = 500
WANTED = 0.95
ABLE = {"cheap": "cheap", "dear": "dear"}


def point(model: str, usd: float, quality: np.ndarray) -> Point:
    strategy = Strategy("one backend", model, float(quality.mean()), usd, only(model), ("dear", "cheap"))
    return Point(strategy, quality, np.full(len(quality), usd))


def measured(chance: np.random.Generator) -> Plan:
    """A plan for two models, whose true qualities are 0.7 and 0.8, measured on `COUNT` prompts."""
    singles = [
        point("cheap", 1e-5, (chance.random(COUNT) < 0.7).astype(np.float64)),
        point("dear", 1e-3, (chance.random(COUNT) < 0.8).astype(np.float64)),
    ]
    sure = tuple(with_doubts(each.strategy, each.quality, singles) for each in singles)
    return Plan(("cheap", "dear"), sure, sure)


def kept(plan: Plan, reference: str, chance: np.random.Generator) -> float:
    """The part of the reference's quality that the plan keeps on as many other prompts."""
    wanted = WANTED * plan.quality_of("dear")
    low, high, share = between([each.least(reference) for each in plan.strategies], wanted)
    weak, strong = ((chance.random(COUNT) < quality).mean() for quality in (0.7, 0.8))
    found = {0: weak, 1: strong}
    return float((share * found[high] + (1 - share) * found[low]) / strong)


def test_nearly_every_set_keeps_what_was_asked_for_and_without_a_margin_half_of_them_do() -> None:
    chance = np.random.default_rng(1)
    plans = [measured(chance) for _ in range(400)]
    with_margin = np.mean([kept(plan, "dear", chance) >= WANTED for plan in plans])
    without = np.mean([kept(plan, "", chance) >= WANTED for plan in plans])
    assert with_margin >= 0.93
    assert without == pytest.approx(0.5, abs=0.1)


def test_a_margin_costs_money_only_where_a_difference_is_in_doubt() -> None:
    plan = measured(np.random.default_rng(2))
    cheap, dear = plan.strategies
    assert dear.least("dear") == dear.quality
    assert cheap.doubts["dear"] == pytest.approx(np.sqrt((0.7 * 0.3 + 0.8 * 0.2) / COUNT), rel=0.1)
    assert cheap.least("dear") == cheap.quality - CAUTION * cheap.doubts["dear"]
    assert cheap.least("") == cheap.quality


def test_the_reference_answers_where_a_cheaper_one_is_only_perhaps_as_good() -> None:
    chance = np.random.default_rng(3)
    cheap, dear = (point(name, usd, (chance.random(COUNT) < 0.8) * 1.0) for name, usd in (("cheap", 1e-5), ("dear", 1)))
    singles = [cheap._replace(strategy=with_doubts(cheap.strategy, cheap.quality, [cheap, dear])), dear]
    plan = Plan(("cheap", "dear"), (singles[0].strategy,), tuple(each.strategy for each in singles))
    start = plan.begin("Hi", plan.quality_of("dear"), "s", ABLE, (), "dear")
    assert start is not None
    assert start.asking.next([]) == ("dear",)


def test_a_plan_file_keeps_the_doubts_and_an_older_one_has_none(tmp_path: Path) -> None:
    plan = measured(np.random.default_rng(4))
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    for one, other in zip(plan.strategies, again.strategies, strict=True):
        assert other.doubts == pytest.approx(one.doubts, rel=1e-5)
    content = (tmp_path / "plan.json").read_text().replace('"doubts"', '"unknown"')
    (tmp_path / "plan.json").write_text(content)
    assert all(not each.doubts for each in load_plan(tmp_path / "plan.json").strategies)
