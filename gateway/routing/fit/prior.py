"""Makes a plan for models without measurements, from their names and prices.

This plan comes from a prior that was fitted to other pools of models. The prior has four parts:

- how quality rises with price
- how much the quality of single models deviates from this rise
- how much harder some prompts are for all models
- how often two wrong answers are equal

Outcomes are drawn at random from the prior. Plain cascades are then chosen on these outcomes, in the same way as on
measured outcomes. The prior is a Rasch model (1960) with an error that is common to the models.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.routing.fit.frontier import plain
from gateway.routing.fit.outcomes import Outcomes, Prices, read_outcomes, read_pool
from gateway.routing.fit.search import Evidence
from gateway.routing.strategy.plan import Plan

Array = NDArray[np.float64]

PACKAGED = "data/prior.json"
PROMPTS = 2000
INPUT_TOKENS, OUTPUT_TOKENS = 100.0, 200.0
"""Input and output tokens of the request for which costs are compared."""


class Prior(NamedTuple):
    """The formula of the prior for the quality of models. The log odds of a good answer are: level + slope · ln(price)
    + value of the model + spread · ease of the prompt."""

    level: float
    slope: float
    """Slope of the log odds per natural logarithm of a model's price. The price is that of 1M output tokens plus a
    third of that of 1M input tokens, in US dollars."""
    spread: float
    coincidence: float
    """Share of the pairs of wrong answers in which both answers are equal."""
    models: Mapping[str, float]
    """Model → the model's own value in the log odds of a good answer."""

    def skill(self, model: str, price: tuple[float, float]) -> float:
        return self.level + self.slope * _log_price(price) + self.models.get(model, 0.0)


def prior(prices: Prices) -> Plan:
    """Make a plan for a pool of models without measured outcomes. `prices`: the prices of the models in the pool."""
    known = orjson.loads((files("gateway.routing") / PACKAGED).read_bytes())
    fields = {name: known[name] for name in Prior._fields}
    models = tuple(prices)
    frontier = plain(models, _imagined(Prior(**fields), prices))
    singles = tuple(point.strategy for point in frontier.singles)
    return Plan(models, frontier.strategies, singles, provenance={**known["provenance"], "method": "prior"})


def _imagined(believed: Prior, prices: Prices) -> Evidence:
    chance = np.random.default_rng(0)
    flat = math.sqrt(1 + believed.spread**2 / 3)
    skill = flat * np.array([believed.skill(model, price) for model, price in prices.items()])
    ease = chance.standard_normal((PROMPTS, 1))
    right = chance.random((PROMPTS, len(skill))) < 1 / (1 + np.exp(-(skill + believed.spread * ease)))
    common = chance.random(right.shape) < math.sqrt(believed.coincidence)
    labels = np.where(right, 0, np.where(common, 1, 2 + np.arange(len(skill))))
    usd = np.array([(price[0] * INPUT_TOKENS + price[1] * OUTPUT_TOKENS) / 1e6 for price in prices.values()])
    able = np.ones(right.shape, dtype=bool)
    return Evidence(labels, right.astype(np.float64), np.tile(usd, (PROMPTS, 1)), able, np.ones((PROMPTS, 1)))


def learn_prior(pools: Sequence[tuple[Outcomes, Prices]]) -> Prior:
    """Fit the prior to measured pools. Each pool has the same weight."""
    odds = [_log_odds(outcomes) for outcomes, _ in pools]
    logs = [np.array([_log_price(prices[model]) for model in outcomes.models]) for outcomes, prices in pools]
    rise = sum(float(((x - x.mean()) * (y - y.mean())).sum()) for x, y in zip(logs, odds, strict=True))
    slope = rise / sum(float(((x - x.mean()) ** 2).sum()) for x in logs)
    levels = [float((y - slope * x).mean()) for x, y in zip(logs, odds, strict=True)]
    own: dict[str, list[float]] = {}
    for (outcomes, _), x, y, level in zip(pools, logs, odds, levels, strict=True):
        for model, residual in zip(outcomes.models, (y - slope * x - level).tolist(), strict=True):
            own.setdefault(model, []).append(residual)
    return Prior(
        round(float(np.mean(levels)), 3),
        round(slope, 3),
        round(float(np.mean([_spread(outcomes, y) for (outcomes, _), y in zip(pools, odds, strict=True)])), 2),
        round(float(np.mean([_coincidence(outcomes) for outcomes, _ in pools])), 3),
        {model: round(float(np.mean(each)), 3) for model, each in sorted(own.items())},
    )


def _log_price(price: tuple[float, float]) -> float:
    return math.log(max(price[1] + price[0] / 3, 1e-3))


def _log_odds(outcomes: Outcomes) -> Array:
    level = np.nanmean(outcomes.quality, 0).clip(0.02, 0.98)
    return np.asarray(np.log(level / (1 - level)))


def _spread(outcomes: Outcomes, odds: Array) -> float:
    """Find the spread of the prompts' ease that fits the measured outcomes. With this spread, the simulated outcomes of
    the models have the same mean correlation as the measured ones. `odds`: log odds of each model's mean quality,
    shape (m,)."""
    rows = outcomes.quality[~np.isnan(outcomes.quality).any(1)]
    wanted = _correlation(rows)
    chance = np.random.default_rng(0)
    ease, luck = chance.standard_normal((4000, 1)), chance.random((4000, len(odds)))
    spreads = np.arange(0.0, 6.01, 0.1)
    found = []
    for spread in spreads.tolist():
        steep = odds * math.sqrt(1 + spread**2 / 3)  # keeps the means approximately unchanged (Zeger et al. 1988)
        found.append(_correlation((luck < 1 / (1 + np.exp(-(steep + spread * ease)))).astype(np.float64)))
    return float(spreads[np.abs(np.array(found) - wanted).argmin()])


def _correlation(rows: Array) -> float:
    varied = rows[:, rows.std(0) > 0]
    between = np.atleast_2d(np.asarray(np.corrcoef(varied.T), dtype=np.float64))
    return float(between[np.triu_indices(len(between), 1)].mean())


def _coincidence(outcomes: Outcomes) -> float:
    labels, wrong = outcomes.labels, outcomes.quality < 0.5
    same = total = 0
    for one in range(labels.shape[1]):
        for other in range(one):
            both = wrong[:, one] & wrong[:, other] & (labels[:, one] >= 0) & (labels[:, other] >= 0)
            total += int(both.sum())
            same += int((labels[both, one] == labels[both, other]).sum())
    return same / max(total, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: `python -m gateway.routing.fit.prior --data FILE --pool FILE [--data FILE --pool FILE …] --out
    FILE`"""
    parser = argparse.ArgumentParser(description="Learn a prior for pools without measurements.")
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--pool", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    if len(given.data) != len(given.pool):
        parser.error("give each --data its --pool")
    pools = []
    for data, pool in zip(given.data, given.pool, strict=True):
        prices = read_pool(pool)
        pools.append((read_outcomes([data], prices), prices))
    learnt = learn_prior(pools)
    sources = [hashlib.sha256(path.read_bytes()).hexdigest() for path in given.data]
    provenance: dict[str, Any] = {"data_sha256": sources, "prompts": sum(len(outcomes) for outcomes, _ in pools)}
    content = orjson.dumps({**learnt._asdict(), "provenance": provenance}, option=orjson.OPT_INDENT_2)
    given.out.write_bytes(content + b"\n")


if __name__ == "__main__":
    main()
