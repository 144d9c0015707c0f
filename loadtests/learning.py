"""`python -m loadtests.learning FILE…`: how far teams are from the prior, and how soon a drop of quality is noticed.

FILE: outcomes as JSON lines {"prompt", "task", "w", "s"} (quality of a weak and a strong answer, 0..1). Every task of
every file stands for a team. The answers of the second table are drawn at random, from a fixed seed.
"""

from __future__ import annotations

import gzip
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median

import orjson

from gateway.domain.routing.learned import logit, sigmoid
from gateway.domain.routing.standing import Judged, Watch, shift_of
from gateway.routing.difficulty.adequacy import Adequacy
from gateway.routing.difficulty.grader import Grader

LEAST, MOST = 40, 200
"""Outcomes of a task: fewer are left out, more are sampled."""
WIDTHS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
SEEN = (5, 20, 40)
SHARES = (1.0, 0.2, 0.05)


def tasks(paths: Sequence[Path]) -> Iterator[tuple[str, list[Judged]]]:
    """Each task's answers of the weak model, as if they had been compared with the strong one's."""
    grader = Grader.load()
    adequacy = Adequacy(grader.artefact.curves)
    for path in paths:
        of_task: dict[str, list[tuple[str, float]]] = {}
        data = path.read_bytes()
        for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
            row = orjson.loads(line)
            as_good = float(row["w"] >= row["s"])
            of_task.setdefault(str(row.get("task", path.name)), []).append((str(row["prompt"]), as_good))
        for task, outcomes in of_task.items():
            if len(outcomes) >= LEAST:
                random.Random(0).shuffle(outcomes)
                judged = []
                for number, (prompt, score) in enumerate(outcomes[:MOST]):
                    predicted = adequacy.of("below", grader.grade(prompt).difficulty)
                    judged.append(Judged(number, predicted, 0.9, score))
                yield f"{path.name.split('.')[0]}/{task}", judged


def log_loss(known: Sequence[Judged], unknown: Sequence[Judged], tau: float) -> float:
    """Nats per answer of `unknown`, calibrated by `known`."""
    shift = shift_of(known, [1.0] * len(known), tau) if tau else 0.0
    chances = [(sigmoid(logit(one.predicted) + shift), one.score) for one in unknown]
    return -mean(math.log(chance if score else 1 - chance) for chance, score in chances)


def widths(found: Sequence[tuple[str, list[Judged]]]) -> None:
    """How far tasks are from the prior, and with which width of it their next answers are foretold best."""
    shifts = [shift_of(judged, [1.0] * len(judged), tau=10.0) for _, judged in found]
    noise = mean(1 / sum(p * (1 - p) for p in (sigmoid(logit(one.predicted) + shift) for one in judged))
                 for (_, judged), shift in zip(found, shifts, strict=True))  # fmt: skip
    middle = mean(shifts)
    spread = math.sqrt(max(0.0, mean((shift - middle) ** 2 for shift in shifts) - noise))
    about_prior = math.sqrt(max(0.0, mean(shift**2 for shift in shifts) - noise))
    print(
        f"{len(found)} tasks: mean shift {middle:+.2f}, spread {spread:.2f} about it, {about_prior:.2f} about the prior"
    )
    print("log loss of the last answers, nats; after the first  " + "  ".join(f"{seen:>5}" for seen in SEEN))
    for tau in (0.0, *WIDTHS):
        losses = [mean(log_loss(judged[:seen], judged[-20:], tau) for _, judged in found if len(judged) >= seen + 20)
                  for seen in SEEN]  # fmt: skip
        print(
            f"  TAU {tau:<4} {'(the prior alone)' if not tau else '':30} " + "  ".join(f"{loss:.3f}" for loss in losses)
        )


def delays(runs: int = 200, good: int = 100, most: int = 400) -> None:
    """Judged answers from a drop to the alarm; promised .95, drawn .96 before it."""
    print(
        "quality after the drop   judged answers (median, nine of ten)   requests at share "
        + ", ".join(map(str, SHARES))
    )
    for after in (0.0, 0.3, 0.6, 0.8, 0.9):
        found = sorted(_delay(random.Random(seed), after, good, most) for seed in range(runs))
        half, most_of = median(found), found[int(0.9 * runs)]
        asked = ", ".join("–" if half >= most else f"{half / share:.0f}" for share in SHARES)
        said = [f"> {most}" if value >= most else f"{value:.0f}" for value in (half, most_of)]
        print(f"{after:>10.1f}               {said[0]:>8} {said[1]:>8}                        {asked}")
    alarms = [_delay(random.Random(seed), 0.95, 0, 1000) for seed in range(runs)]
    print(f"false alarms within 1,000 judged answers at exactly .95: {sum(one < 1000 for one in alarms)} of {runs}")


def _delay(chance: random.Random, after: float, good: int, most: int) -> int:
    watch = Watch()
    for number in range(good + most):
        quality = 0.96 if number < good else after
        watch.see(number, Judged(number, 0.95, 0.95, float(chance.random() < quality)))
        if watch.alarm is not None and number >= good:
            return number + 1 - good
    return most


if __name__ == "__main__":
    if len(sys.argv) > 1:
        widths(list(tasks([Path(name) for name in sys.argv[1:]])))
    delays()
