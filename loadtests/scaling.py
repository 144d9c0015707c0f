"""What a request costs with 1, 2 and 4 workers, and how many requests a machine with more cores would serve.

`python -m loadtests scaling` gives the gateway all cores, and shares them with the load generator and the scripted
provider. So the answers per second say little on a small machine; the CPU time of each kind of process is what counts.
The estimate for other machines is `Cost.most_per_s`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import orjson
from rich.console import Console
from rich.table import Table

from loadtests import cells, procfs
from loadtests.cells import Cell, Entry, Size
from loadtests.measure import Bench, running_generator
from loadtests.processes import Cores
from loadtests.targets import Target, running_gateway, running_upstream

KINDS = ("workers", "supervisor", "state")
CORES = (2, 4, 8, 16, 32)
USED = 0.6
"""Share of the cores that a machine should use, so that there is room for peaks."""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time in µs that one request takes in each kind of process."""

    workers: float
    supervisor: float
    """The ledger's writer is one thread of the supervisor."""
    state: float
    """The state server (Valkey) is one thread."""

    @property
    def total(self) -> float:
        return self.workers + self.supervisor + self.state

    def most_per_s(self, cores: int) -> tuple[int, str]:
        """The requests per second of a machine with `cores` cores, and what limits them.

        Assumes that a request costs as much on every core and with every number of workers, and that the load is shared
        equally by the workers. All cores together are used up to `USED`, and so are the ledger's writer and the state
        server, each of which has at most one core.
        """
        limits = {
            "all cores": cores / self.total,
            "ledger's writer": 1 / self.supervisor,
            "state server": 1 / self.state,
        }
        name = min(limits, key=lambda each: limits[each])
        return int(limits[name] * USED * 1e6), name


@dataclass(frozen=True, slots=True)
class Round:
    """One round with one number of workers."""

    workers: int
    per_s: float
    """Answers per second."""
    cost: Cost
    void: str
    """Why the round does not count; empty when it does."""


def kind_of(name: str) -> str:
    """The member of `KINDS` for the name of a process."""
    return "workers" if name.startswith("tg-worker") else "state" if name.startswith("valkey") else "supervisor"


def spent(root: int) -> dict[str, int]:
    """CPU time of each kind of process below `root` so far, in ticks."""
    found = dict.fromkeys(KINDS, 0)
    for each in procfs.tree(root):
        found[kind_of(each.name)] += each.own + each.waited_for
    return found


def one_round(bench: Bench, cell: Cell, target: Target, workers: int, number: int) -> Round:
    """Measure one round of `cell`. The warm-up is part of the shares of the processes, not of the CPU time."""
    assert target.root is not None
    before = spent(target.root)
    figure = bench.measure(cell, Entry("thriftgate"), target, number)
    shares = {kind: now - before[kind] for kind, now in spent(target.root).items()}
    whole, us = max(sum(shares.values()), 1), figure.cpu_us or 0.0
    cost = Cost(*[us * shares[kind] / whole for kind in KINDS])
    return Round(workers, figure.outcome.right / figure.outcome.seconds, cost, figure.void)


def measured(counts: Sequence[int], cell: Cell, size: Size, say: Callable[[str], None]) -> list[Round]:
    """`size.rounds` rounds for each number of workers, in turns."""
    found: list[Round] = []
    cores = Cores.available()
    with tempfile.TemporaryDirectory() as folder, running_upstream(cores) as upstream, running_generator(cores) as load:
        bench = Bench(load, upstream, size)
        for number in range(1, size.rounds + 1):
            for count in counts:
                say(f"round {number} of {size.rounds}, {count} workers")
                with running_gateway(Path(folder) / f"{number}-{count}", cores, upstream, workers=count) as target:
                    found.append(one_round(bench, cell, target, count, number))
    return found


def typical(rounds: Sequence[Round]) -> Cost:
    """The median of each kind of process over `rounds`."""
    return Cost(*[median(getattr(each.cost, kind) for each in rounds) for kind in KINDS])


def _show(rounds: Sequence[Round], console: Console) -> None:
    table = Table("workers", "answers/s", "CPU µs", "workers µs", "supervisor µs", "state server µs", "void")
    by_count = {count: [each for each in rounds if each.workers == count] for count in {r.workers: 0 for r in rounds}}
    for count, found in by_count.items():
        good = [each for each in found if not each.void]
        if good:
            cost = typical(good)
            figures = [f"{each:.0f}" for each in (cost.total, cost.workers, cost.supervisor, cost.state)]
            per_s = f"{median(each.per_s for each in good):,.0f}"
            table.add_row(str(count), per_s, *figures, f"{len(found) - len(good)} of {len(found)}")
    console.print(table)
    if good := [each for each in rounds if not each.void and each.workers == max(by_count)]:
        estimate = Table("cores", "requests/s", "limited by")
        for cores in CORES:
            most, limit = typical(good).most_per_s(cores)
            estimate.add_row(str(cores), f"{most:,}", limit)
        console.print(estimate)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests scaling", description=__doc__)
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers")
    parser.add_argument("--cell", default="1k-c64", help="default: 1k-c64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=12_000, help="of each number of workers, over all rounds")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    given = parser.parse_args(words)
    counts = [int(each) for each in given.workers.split(",")]
    (cell,) = cells.chosen(given.cell, (1, 16, 64, 256))
    size = Size(rounds=given.rounds, requests=given.requests, cpu_s=60.0)
    rounds = measured(counts, cell, size, lambda text: print(text, flush=True))
    _show(rounds, Console(width=100))
    if given.json:
        found = {"cores": os.cpu_count(), "cell": cell.name, "rounds": [asdict(each) for each in rounds]}
        given.json.write_bytes(orjson.dumps(found))
    return int(any(each.void for each in rounds))
