"""Summary of compared pairs: how often b is as good as a, for which prompts, at what price and speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from gateway.domain.routing.standing import wilson
from gateway.domain.units import PICO_PER_USD
from gateway.learning.shadow.pairs import Pair, Response

Z = 1.959964
"""Of two-sided 95 % intervals."""
MOST_BINS, LEAST_IN_BIN = 4, 10
RESAMPLES = 2000

Judged = Literal["yes", "no", "too few to say"]


@dataclass(frozen=True, slots=True)
class Interval:
    """95 %, over `n` prompts."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Bin:
    """Prompts between two difficulties; `part`: share of those that could be judged. Bounds None: outside the grader's
    domain."""

    low: float | None
    high: float | None
    part: float
    as_good: Interval
    adequate: Judged


@dataclass(frozen=True, slots=True)
class Pace:
    """One backend over all its answers."""

    answers: int
    failed: int
    tokens_per_second: float | None
    """Output tokens over the time of their calls."""
    seconds: float | None
    """Of the middle call."""
    usd: float | None
    """In all; None where a price is unknown."""
    usd_per_million: float | None
    """Tokens, input and output, as they were mixed here."""
    right: Interval | None
    """Share of right answers, where the expected ones are known."""


@dataclass(frozen=True, slots=True)
class Tally:
    a: Pace
    b: Pace
    asked: int
    judged: int
    as_good: Interval | None
    adequate: Judged
    better: Interval | None
    """Mean of b's right answers less a's, paired."""
    bins: tuple[Bin, ...]
    adequate_share: float
    """Of the judged prompts: the easiest bins in a row for which b is adequate."""
    adequate_below: float | None
    """The difficulty up to which that is so."""


def tally(pairs: Sequence[Pair], difficulty: Callable[[Pair], float | None], quality: float) -> Tally:
    """`difficulty`: 0..1, or None outside what the grader knows. `quality`: the share of answers that must be as good;
    b is adequate where the interval's lower end reaches it, and not where the upper one does not."""
    judged = [(pair, score) for pair in pairs if (score := pair.as_good) is not None]
    bins = tuple(_bins([(difficulty(pair), score) for pair, score in judged], quality))
    reach = []
    for each in bins:
        if each.high is None or each.adequate != "yes":
            break
        reach.append(each)
    both = [(a, b) for pair in pairs for a, b in [pair.right] if a is not None and b is not None]
    overall = share([score for _, score in judged]) if judged else None
    return Tally(
        _pace([pair.a for pair in pairs], [a for a, _ in both]),
        _pace([pair.b for pair in pairs], [b for _, b in both]),
        len(pairs),
        len(judged),
        overall,
        _judge(overall, quality) if overall else "too few to say",
        bootstrap([b - a for a, b in both]) if both else None,
        bins,
        sum(each.part for each in reach),
        reach[-1].high if reach else None,
    )


def share(scores: Sequence[float]) -> Interval:
    """A share with its score interval (Wilson 1927); half points count as halves, which widens it at most."""
    n, mean = len(scores), sum(scores) / len(scores)
    return Interval(mean, *wilson(mean, n, Z), n)


def bootstrap(values: Sequence[float]) -> Interval:
    """The mean with its percentile interval over resampled prompts; always the same for the same values."""
    import numpy as np

    found = np.asarray(values, dtype=float)
    drawn = np.random.default_rng(0).integers(0, len(found), (RESAMPLES, len(found)))
    low, high = np.quantile(found[drawn].mean(axis=1), (0.025, 0.975))
    return Interval(float(found.mean()), float(low), float(high), len(found))


def _judge(of: Interval, quality: float) -> Judged:
    return "yes" if of.low >= quality else "no" if of.high < quality else "too few to say"


def _bins(scored: Sequence[tuple[float | None, float]], quality: float) -> list[Bin]:
    """Groups with equally many prompts, the easiest first; prompts outside the grader's domain last."""
    known = sorted((hard, score) for hard, score in scored if hard is not None)
    outside = [score for hard, score in scored if hard is None]
    count = max(1, min(MOST_BINS, len(known) // LEAST_IN_BIN))
    edges = [len(known) * number // count for number in range(count + 1)]
    found = []
    for begin, end in pairwise(edges):
        if part := known[begin:end]:
            of = share([score for _, score in part])
            found.append(Bin(part[0][0], part[-1][0], len(part) / len(scored), of, _judge(of, quality)))
    if outside:
        of = share(outside)
        found.append(Bin(None, None, len(outside) / len(scored), of, _judge(of, quality)))
    return found


def _pace(said: Sequence[Response], right: Sequence[float]) -> Pace:
    whole = [each for each in said if not each.error]
    times = sorted(each.seconds for each in whole)
    busy = sum(times)
    tokens = sum(each.input_tokens + each.output_tokens for each in whole)
    costs = [each.cost_pico for each in whole]
    usd = sum(cost for cost in costs if cost is not None) / PICO_PER_USD if costs and None not in costs else None
    return Pace(
        len(whole),
        len(said) - len(whole),
        sum(each.output_tokens for each in whole) / busy if busy else None,
        times[len(times) // 2] if times else None,
        float(usd) if usd is not None else None,
        float(usd) / tokens * 10**6 if usd is not None and tokens else None,
        share(right) if right else None,
    )
