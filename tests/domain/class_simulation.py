"""Simulates requests of one traffic class, to measure the statistics of `gateway/domain/routing/class_trial.py`.

`python -m tests.domain.class_simulation --seeds 100 150` prints the figures of docs/explanation/learning.md. Costs are
in units of a reference call; a call of the cheaper backend costs CHEAP.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from gateway.domain.routing.class_trial import SHARES, ClassTrial, Comparison

CHEAP = 0.1
SESSIONS = 5_000
SETTLED = 500
"""Requests between the opening of the class and a drop."""


@dataclass(frozen=True)
class Setting:
    """`right`: probability that the cheaper backend's answer is as good as the reference's. `judge`: share of verdicts
    that are wrong, each way. `learning`: the policy's share. `delay`: requests between a comparison and its effect.
    `weak`: share of the wrong answers that look weak. `drop`: by how much `right` falls after the opening."""

    right: float = 1.0
    judge: float = 0.0
    learning: float = 0.5
    target: float = 0.95
    requests: int = 10_000
    delay: int = 0
    weak: float = 0.0
    drop: float = 0.0


@dataclass
class Outcome:
    """`opened`: number of the request from which on all sessions are served; None: never. `spent`: cost of comparisons.
    `saved`: saving by served requests. `compared`, `served`: wrong answers between the drop and the closing."""

    opened: int | None = None
    to_cheaper: int = 0
    spent: float = 0.0
    saved: float = 0.0
    closings: int = 0
    compared: int = 0
    served: int = 0
    closed_after_drop: bool = False


def simulate(setting: Setting, seed: int) -> Outcome:
    """One run. With a drop, it ends when the class is closed after the drop."""
    draw = random.Random(seed)
    trial, out, sound = ClassTrial(setting.target), Outcome(), 0
    places = [draw.random() for _ in range(SESSIONS)]
    waiting: deque[tuple[int, Comparison]] = deque()
    dropped = False
    for number in range(setting.requests):
        while waiting and waiting[0][0] <= number:
            change = trial.see(waiting.popleft()[1])
            out.closings += change == "closed"
            if change == "closed" and dropped:
                out.closed_after_drop = True
                return out
            if trial.stage == len(SHARES) - 1 and out.opened is None:
                out.opened = number
        dropped = bool(setting.drop) and out.opened is not None and number >= out.opened + SETTLED
        good = draw.random() < setting.right - setting.drop * dropped
        served = places[draw.randrange(SESSIONS)] < trial.share
        weak = served and not good and draw.random() < setting.weak
        drawn = draw.random() < trial.compare_share(setting.learning, served=served)
        out.to_cheaper += served
        out.saved += (1 - CHEAP) * served
        out.served += served and dropped and not good
        if not drawn and not weak:
            sound += served
            continue
        out.spent += 1 if served else CHEAP
        score = float(good != (draw.random() < setting.judge))
        out.compared += dropped and not score
        waiting.append((number + 1 + setting.delay, Comparison(score, served, weak, drawn, sound * served)))
        sound *= not served
    return out


def runs(setting: Setting, seeds: Iterable[int]) -> list[Outcome]:
    return [simulate(setting, seed) for seed in seeds]


def _middle(values: Iterable[float | None]) -> str:
    known = sorted(float("inf") if value is None else value for value in values)
    return f"median {median(known):g}, range {known[0]:g} to {known[-1]:g}"


def _opening(seeds: range, judge: float, learning: float) -> str:
    found = runs(Setting(judge=judge, learning=learning), seeds)
    costs = [one.spent / one.saved if one.saved else float("inf") for one in found]
    return (
        f"as good, judge wrong {judge:.0%}, learning {learning:.0%}: requests until all go there: "
        f"{_middle(one.opened for one in found)}; learning cost / saving of 10,000 requests: median "
        f"{median(costs):.1%}, worst {max(costs):.1%}; false closings per 10,000: "
        f"{fmean(one.closings for one in found):.3f}"
    )


def _drop(seeds: range, weak: float, delay: int) -> str:
    setting = Setting(judge=0.05, drop=0.5, requests=80_000, weak=weak, delay=delay)
    found = [one for one in runs(setting, seeds) if one.closed_after_drop]
    return (
        f"drop by 50 points, judge wrong 5%, {weak:.0%} of the wrong answers look weak, delay {delay}: wrong answers "
        f"compared: {_middle(one.compared for one in found)}; served: {_middle(one.served for one in found)} "
        f"({len(found)} of {len(seeds)} runs)"
    )


def _worse(seeds: range, right: float, judge: float) -> str:
    found = runs(Setting(right=right, judge=judge), seeds)
    shares = [one.to_cheaper / 10_000 for one in found]
    return (
        f"right {right:.2f}, judge wrong {judge:.0%}: share of 10,000 requests sent there: mean {fmean(shares):.3%}, "
        f"worst {max(shares):.2%}; learning cost {fmean(one.spent for one in found):.0f} reference calls"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", nargs=2, type=int, default=(100, 150))
    seeds = range(*parser.parse_args().seeds)
    for judge in (0.0, 0.05):
        for learning in (0.1, 0.5, 1.0):
            print(_opening(seeds, judge, learning), flush=True)
    for weak in (0.0, 0.5, 1.0):
        for delay in (0, 20):
            print(_drop(seeds, weak, delay), flush=True)
    for right in (0.92, 0.90, 0.85):
        for judge in (0.0, 0.05):
            print(_worse(seeds, right, judge), flush=True)


if __name__ == "__main__":
    main()
