"""Evaluates a grader on real prompts by the area under the performance-gap-recovered curve (see `apgr`), with its
uncertainty."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gateway.routing.difficulty.grader import Grader

Array = NDArray[np.float64]


class DataError(ValueError):
    """A data file cannot be used. The message names file, line and remedy."""


def reason(error: Exception) -> str:
    """The text of a DataError that says why a line of a data file cannot be used. `error`: the exception that reading
    the line raised."""
    if isinstance(error, orjson.JSONDecodeError):
        return "not JSON"
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt, with the quality (0..1) of the weak model's and of the strong model's answer."""

    group: str
    """The prompt's data set."""
    prompt: str
    weak: float
    strong: float
    qualities: dict[str, float] = field(default_factory=dict)
    """Model → quality, if several models were measured."""


def read_outcomes(path: Path) -> Iterator[Outcome]:
    """Read lines `{"prompt","w","s"[,"dataset","q"]}`, plain or gzip. Raises DataError, OSError."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield _outcome(orjson.loads(line), path.name.split(".")[0])
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise DataError(
                    f"{path}:{number}: not an outcome ({reason(error)}); each line needs prompt, w and s, "
                    "see docs/reference/files.md"
                ) from error


def _outcome(row: dict[str, Any], name: str) -> Outcome:
    prompt = row["prompt"]
    if not isinstance(prompt, str):
        raise TypeError("prompt must be text")
    known = {model: float(value) for model, value in (row.get("q") or {}).items() if value is not None}
    return Outcome(str(row.get("dataset") or name), prompt, float(row["w"]), float(row["s"]), known)


def apgr(scores: Array, weak: Array, strong: Array) -> float:
    """A measure of how well `scores` order prompts by difficulty. It is the area ∫ (quality(f) − weak) / (strong −
    weak) df. Here f is the share of prompts that is sent to the strong model; prompts with the highest scores are
    sent first. All arguments have shape (n,).

    A random order gives 0.5. The result is NaN if the strong model is not better than the weak one.
    """
    gain = strong - weak
    if len(gain) == 0 or gain.sum() <= 0:
        return float("nan")
    _, place, size = np.unique(-scores, return_inverse=True, return_counts=True)
    level = np.bincount(place, gain) / size
    curve = np.concatenate([[0.0], np.cumsum(np.repeat(level, size))])
    return float(np.trapezoid(curve, dx=1 / len(gain)) / curve[-1])


def apgr_interval(
    scores: Array, weak: Array, strong: Array, *, rounds: int = 200, seed: int = 0
) -> tuple[float, float]:
    """The 95 % bootstrap interval of `apgr`. `rounds`: number of bootstrap samples."""
    chance = np.random.default_rng(seed)
    values = []
    for _ in range(rounds):
        drawn = chance.integers(0, len(scores), len(scores))
        values.append(apgr(scores[drawn], weak[drawn], strong[drawn]))
    if np.isnan(values).all():
        return float("nan"), float("nan")
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class SetReport:
    """The result of the evaluation for one data set."""

    name: str
    prompts: int
    weak: float
    strong: float
    apgr: float
    low: float
    high: float
    abstained: float
    """Share of the prompts that are outside the classifier's domain. The report includes the scores of these prompts.
    """


def evaluate(paths: Iterable[Path], grader: Grader) -> list[SetReport]:
    """Make one report for each data set in the files. Raises DataError, OSError."""
    sets: dict[str, list[Outcome]] = {}
    for path in paths:
        for outcome in read_outcomes(path):
            sets.setdefault(outcome.group, []).append(outcome)
    return [_report(name, outcomes, grader) for name, outcomes in sets.items()]


def _report(name: str, outcomes: list[Outcome], grader: Grader) -> SetReport:
    grades = [grader.grade(outcome.prompt) for outcome in outcomes]
    scores = np.array([grade.difficulty for grade in grades])
    weak = np.array([outcome.weak for outcome in outcomes])
    strong = np.array([outcome.strong for outcome in outcomes])
    low, high = apgr_interval(scores, weak, strong)
    abstained = sum(grade.abstained for grade in grades) / len(grades)
    return SetReport(
        name, len(outcomes), float(weak.mean()), float(strong.mean()), apgr(scores, weak, strong), low, high, abstained
    )
