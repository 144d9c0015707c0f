"""Whether a soak shows a plateau: straight lines through the last two thirds, and accounts that agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loadtests.matrix_judge import Row
from loadtests.soak_mix import Tally
from loadtests.soak_sample import Sampled

MIB = 2**20
GROWTH_MIB = 10.0
"""Of a process of ours per 100,000 requests, as the bar says; and never judged more finely than `LEAST_MIB`."""
LEAST_MIB = 4.0
MORE_DESCRIPTORS, MORE_THREADS, MORE_TASKS = 6, 3, 20
"""Between the medians of the middle third and of the last: a moment's load is not growth."""
UNDRAINED_BYTES = 2 * MIB


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of one process over the soak."""

    what: str
    first: float
    last: float
    growth: float
    """Over the last two thirds, along the straight line through them."""
    bound: float | None
    """None: not judged."""

    @property
    def ok(self) -> bool:
        return self.bound is None or self.growth <= self.bound


def growth(times: Sequence[float], values: Sequence[float]) -> float:
    """What the least-squares line through the last two thirds gains from its begin to its end."""
    start = len(times) // 3
    times, values = times[start:], values[start:]
    if len(times) < 3:
        return 0.0
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - mean) for at, value in zip(times, values, strict=True)) / spread
    return slope * (times[-1] - times[0])


def more(values: Sequence[float]) -> float:
    """The last third's median less the middle third's."""
    third = len(values) // 3
    if not third:
        return 0.0
    middle, last = sorted(values[third : 2 * third]), sorted(values[2 * third :])
    return last[len(last) // 2] - middle[len(middle) // 2]


def lines(samples: Sequence[Sampled], requests: int) -> list[Line]:
    """Every figure that is looked at; `requests`: how many were asked in all."""
    found: list[Line] = []
    times = [one.at for one in samples]
    names = [name for name in samples[-1].processes if all(name in one.processes for one in samples)]
    bound = max(LEAST_MIB, GROWTH_MIB * requests * 2 / 3 / 100_000)

    def add(what: str, values: list[float], grown: Callable[[list[float]], float], most: float | None) -> None:
        found.append(Line(what, values[0], values[-1], grown(values), most))

    def along(values: list[float]) -> float:
        return growth(times, values)

    for name in names:
        ours = [one.processes[name] for one in samples]
        judged = None if name == "state" else bound  # keeps flight records for an hour: it grows for as long
        add(f"{name} PSS MiB", [each.pss / MIB for each in ours], along, judged)
        add(f"{name} RSS MiB", [each.rss / MIB for each in ours], along, judged)
        add(f"{name} descriptors", [float(each.descriptors) for each in ours], more, MORE_DESCRIPTORS)
        add(f"{name} threads", [float(each.threads) for each in ours], more, MORE_THREADS)
    add("tasks of a loop", [float(one.tasks) for one in samples], more, MORE_TASKS)
    add("journal MiB", [one.journal_bytes / MIB for one in samples], along, None)
    add("not drained KiB", [one.undrained_bytes / 1024 for one in samples], more, UNDRAINED_BYTES / 1024)
    add("state's memory MiB", [one.state_bytes / MIB for one in samples], along, None)
    return found


def missing(samples: Sequence[Sampled]) -> list[str]:
    """Processes that were not there all the while."""
    every = {name for one in samples for name in one.processes}
    return [
        f"{name} was not always there" for name in sorted(every) if any(name not in one.processes for one in samples)
    ]


def account(tally: Tally, rows: Sequence[Row], sent: Mapping[str, int]) -> list[str]:
    """`sent`: calls that every provider has seen. What clients got, providers saw and the ledger has must agree."""
    of = {(row.request_id, row.outcome): row for row in rows if row.attempt}
    served = sum(row.outcome == "ok" for row in rows if row.attempt)
    lost = [id for id in tally.answers if (id, "ok") not in of]
    unlike = [
        id for id, tokens in tally.answers.items()
        if (row := of.get((id, "ok"))) and ((row.input_tokens, row.output_tokens) != tokens or row.estimated)
    ]  # fmt: skip
    found = [f"{len(lost)} answers have no row"] if lost else []
    found += [f"{len(unlike)} rows do not have the tokens that the client saw"] if unlike else []
    hits = sum(not row.attempt for row in rows)
    if hits != tally.hits:
        found.append(f"{tally.hits} hits, {hits} rows of them")
    calls = sum(bool(row.attempt) for row in rows)
    if calls != sum(sent.values()):
        found.append(f"the providers saw {sum(sent.values())} calls, the ledger has {calls} ({served} served)")
    return found
