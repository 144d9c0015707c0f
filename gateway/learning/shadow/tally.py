"""Summarises comparisons of two backends, a and b: how often b is as good as a, for which prompts, and at what price
and speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from gateway.domain.routing.standing import wilson
from gateway.domain.units import PICO_PER_USD
from gateway.learning.shadow.pairs import Pair, Response

Z = 1.959964
"""Standard-normal quantile of two-sided 95 % intervals."""
MOST_BINS, LEAST_IN_BIN = 4, 10
RESAMPLES = 2000

Judged = Literal["yes", "no", "too few to say"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval over `n` prompts."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Bin:
    """The prompts in a range of difficulty. `part`: these prompts as a share of all judged prompts. The bounds of the
    range are None for prompts that the grader cannot judge."""

    low: float | None
    high: float | None
    part: float
    as_good: Interval
    adequate: Judged


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed and cost of one backend over all its answers."""

    answers: int
    failed: int
    tokens_per_second: float | None
    """Output tokens divided by the total duration of the calls."""
    seconds: float | None
    """Median duration of a call in seconds."""
    usd: float | None
    """Total cost in US dollars; None if a price is unknown."""
    usd_per_million: float | None
    """US dollars per million tokens, with the measured proportion of input and output tokens."""
    right: Interval | None
    """Share of answers that are right, over the prompts with an expected answer."""


@dataclass(frozen=True, slots=True)
class Tally:
    a: Pace
    b: Pace
    asked: int
    judged: int
    as_good: Interval | None
    adequate: Judged
    better: Interval | None
    """Mean difference: score of b's answer minus score of a's answer to the same prompt, by the expected answers."""
    bins: tuple[Bin, ...]
    adequate_share: float
    """Share of the judged prompts for which b is adequate. Only the prompts in the bins before the first bin for which
    b is not adequate count; the bins are in order of difficulty, easiest first."""
    adequate_below: float | None
    """The highest difficulty of the prompts in `adequate_share`; None if there are no such prompts."""


def tally(pairs: Sequence[Pair], difficulty: Callable[[Pair], float | None], quality: float) -> Tally:
    """Summarise `pairs` by difficulty. `difficulty`: returns 0..1, or None for a prompt that the grader cannot judge.
    `quality`: minimum share of b's answers that must be as good as a's answers.

    The prompts are divided into bins by difficulty. For each bin, an interval is computed for the share of b's answers
    that are as good as a's. b is adequate for the bin if the lower end of the interval reaches `quality`. b is
    inadequate if the upper end does not reach `quality`.
    """
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
    """The mean of `scores` with Wilson's interval (1927). A score of 0.5 counts as half a prompt. This can only widen
    the interval.
    """
    n, mean = len(scores), sum(scores) / len(scores)
    return Interval(mean, *wilson(mean, n, Z), n)


def bootstrap(values: Sequence[float]) -> Interval:
    """The mean of `values` with its percentile interval over resampled prompts. The seed is fixed, so that equal values
    give equal results."""
    import numpy as np

    found = np.asarray(values, dtype=float)
    drawn = np.random.default_rng(0).integers(0, len(found), (RESAMPLES, len(found)))
    low, high = np.quantile(found[drawn].mean(axis=1), (0.025, 0.975))
    return Interval(float(found.mean()), float(low), float(high), len(found))


def _judge(of: Interval, quality: float) -> Judged:
    return "yes" if of.low >= quality else "no" if of.high < quality else "too few to say"


def _bins(scored: Sequence[tuple[float | None, float]], quality: float) -> list[Bin]:
    """Divide the prompts into bins of about equal size, easiest bin first. Prompts that the grader cannot judge form
    the last bin."""
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


def _pace(responses: Sequence[Response], right: Sequence[float]) -> Pace:
    whole = [each for each in responses if not each.error]
    times = sorted(each.seconds for each in whole)
    busy = sum(times)
    tokens = sum(each.input_tokens + each.output_tokens for each in whole)
    costs = [each.cost_pico for each in whole]
    usd = sum(cost for cost in costs if cost is not None) / PICO_PER_USD if costs and None not in costs else None
    return Pace(
        len(whole),
        len(responses) - len(whole),
        sum(each.output_tokens for each in whole) / busy if busy else None,
        times[len(times) // 2] if times else None,
        float(usd) if usd is not None else None,
        float(usd) / tokens * 10**6 if usd is not None and tokens else None,
        share(right) if right else None,
    )
