"""Intervals are those of the books, and a backend is called adequate only for what was shown."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.learning.shadow.pairs import Pair, Prompt, Response
from gateway.learning.shadow.tally import bootstrap, share, tally


def pair(number: int, agreed: float | None = 1.0, right: Any = (None, None), **b: Any) -> Pair:
    said = Response(seconds=2.0, input_tokens=100, output_tokens=50, cost_pico=3_000_000)
    return Pair(Prompt(str(number), {}), said, Response(**{"seconds": 1.0, "output_tokens": 50, **b}), agreed, right)


def hard(one: Pair) -> float:
    return int(one.prompt.id) / 1000


@pytest.mark.parametrize(
    ("scores", "low", "high"),
    [([1.0] * 10, 0.722, 1.0), ([0.0] * 10, 0.0, 0.278), ([1.0] * 81 + [0.0] * 182, 0.2553, 0.3662)],
)
def test_wilsons_interval(scores: list[float], low: float, high: float) -> None:
    """The last one is of Newcombe 1998, table I."""
    of = share(scores)
    assert (of.low, of.high) == pytest.approx((low, high), abs=0.0005)


def test_the_bootstrap_is_the_same_each_time_and_holds_the_mean() -> None:
    values = [1.0, 0.0, -1.0, 1.0, 0.0] * 20
    assert bootstrap(values) == bootstrap(values)
    of = bootstrap(values)
    assert of.low < of.mean < of.high
    assert (round(of.mean, 3), of.n) == (0.2, 100)


def test_adequate_for_the_easy_part_alone() -> None:
    pairs = [pair(number, 1.0 if number < 500 else float(number % 2)) for number in range(1000)]
    told = tally(pairs, hard, 0.95)
    assert [one.adequate for one in told.bins] == ["yes", "yes", "no", "no"]
    assert told.adequate == "no"
    assert told.adequate_share == pytest.approx(0.5)
    assert told.adequate_below == pytest.approx(0.499)


def test_few_prompts_show_nothing() -> None:
    told = tally([pair(number) for number in range(20)], hard, 0.95)
    assert told.as_good is not None
    assert (told.as_good.mean, told.adequate, told.adequate_below) == (1.0, "too few to say", None)
    assert [one.adequate for one in told.bins] == ["too few to say"] * 2


def test_an_expected_answer_has_the_last_word_and_is_compared_in_pairs() -> None:
    pairs = [pair(number, 0.0, (1.0, 1.0)) for number in range(90)]
    pairs += [pair(number, 1.0, (1.0, 0.0)) for number in range(90, 100)]
    told = tally(pairs, hard, 0.8)
    assert told.as_good is not None
    assert told.as_good.mean == pytest.approx(0.9)
    assert told.adequate == "yes"
    assert told.better is not None
    assert told.better.mean == pytest.approx(-0.1)
    assert told.better.high < 0 or told.better.low < -0.1 < told.better.high
    assert told.a.right is not None
    assert told.b.right is not None
    assert (told.a.right.mean, told.b.right.mean) == pytest.approx((1.0, 0.9))


def test_pace_and_price_are_of_whole_answers() -> None:
    pairs = [pair(1, cost_pico=1_000_000, input_tokens=50), pair(2, None, error="backend_failed")]
    told = tally(pairs, lambda one: None, 0.9)
    assert (told.a.answers, told.a.tokens_per_second, told.a.usd_per_million) == (2, 25.0, pytest.approx(0.02))
    assert (told.b.answers, told.b.failed, told.b.tokens_per_second) == (1, 1, 50.0)
    assert told.b.usd_per_million == pytest.approx(0.01)
    assert [(one.low, one.part) for one in told.bins] == [(None, 1.0)]
    assert (told.asked, told.judged) == (2, 1)


def test_unknown_prices_stay_unknown() -> None:
    told = tally([pair(1, cost_pico=None)], hard, 0.9)
    assert (told.b.usd, told.b.usd_per_million) == (None, None)
    assert tally([pair(1, None)], hard, 0.9).as_good is None
