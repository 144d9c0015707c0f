"""Two checkouts side by side: what a request costs in this one, divided by what it costs in the other.

`python -m loadtests --against PATH` starts a gateway of each, each with its own code, and has them answer the same load
in turns, in a new order each round. Exit status: 1 when a cell is dearer than `--tolerance` percent or a round is void.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from loadtests.cells import Cell, Entry, Size, chosen
from loadtests.measure import Bench, Figure, running_generator
from loadtests.processes import REPOSITORY, Cores
from loadtests.rounds import one_round
from loadtests.targets import Target, running_gateway, running_upstream

OURS, THEIRS = "ours", "theirs"
LEAST_ROUNDS = 9
GATEWAYS = ("thriftgate", "everything")
"""Rows of a cell that are a gateway's."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of one row of one cell: ours ÷ theirs, round by round."""

    cell: str
    entry: str
    cpu: tuple[float, ...]
    p50: tuple[float, ...]
    void: int = 0

    @classmethod
    def of(cls, cell: str, entry: str, figures: Sequence[Figure]) -> Ratio:
        """Rounds in which either side is void do not count."""
        own = [each for each in figures if each.entry in (f"{OURS} {entry}", f"{THEIRS} {entry}")]
        rounds = {figure.round for figure in own}
        pairs = []
        for number in rounds:
            both = {each.entry: each for each in own if each.round == number and not each.void and each.cpu_us}
            if len(both) == 2:
                pairs.append((both[f"{OURS} {entry}"], both[f"{THEIRS} {entry}"]))
        cpu = tuple((ours.cpu_us or 0.0) / (theirs.cpu_us or 1.0) for ours, theirs in pairs)
        p50 = tuple(
            ours.outcome.latency_ms["p50"] / max(theirs.outcome.latency_ms["p50"], 1e-6) for ours, theirs in pairs
        )
        return cls(cell, entry, cpu, p50, len(rounds) - len(pairs))

    def dearer(self, tolerance: float) -> bool:
        """Is the median above 1 by more than `tolerance` percent, or is there none?"""
        return not self.cpu or statistics.median(self.cpu) > 1 + tolerance / 100

    def line(self) -> str:
        ratios = f"CPU {_spread(self.cpu):<28} p50 {_spread(self.p50):<28}"
        return f"{self.cell:<12} {self.entry:<10} {ratios} void rounds {self.void}"


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "–"
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})"


def beside(cell: Cell) -> Cell:
    """The cell with each of its rows that a gateway answers twice: hits stay hits, and everything stays on."""
    return replace(
        cell,
        entries=tuple(
            replace(entry, target=f"{side} {entry.target}", label=f"{side} {entry.name}")
            for entry in cell.entries
            if entry.target in GATEWAYS
            for side in (OURS, THEIRS)
        ),
    )


def _start(
    entries: Iterable[Entry], other: Path, folder: Path, cores: Cores, upstream: int, exits: ExitStack
) -> dict[str, Target]:
    """The gateways that some row needs."""
    checkouts, found = {OURS: REPOSITORY, THEIRS: other}, {}
    for name in dict.fromkeys(entry.target for entry in entries):
        side, _, kind = name.partition(" ")
        gateway = running_gateway(
            folder / name.replace(" ", "-"), cores, upstream,
            name=name, everything=kind == "everything", checkout=checkouts[side],
        )  # fmt: skip
        found[name] = exits.enter_context(gateway)
    return found


def compare(cells: Sequence[Cell], other: Path, size: Size, *, data: Path | None = None) -> list[Ratio]:
    """Raises RuntimeError when a gateway does not start."""
    cores, folder = Cores.available(), Path(tempfile.mkdtemp(prefix="tg-against-", dir=data))
    with ExitStack() as exits:
        exits.callback(shutil.rmtree, folder, ignore_errors=True)
        upstream = exits.enter_context(running_upstream(cores))
        doubled = [beside(cell) for cell in cells]
        entries = [entry for cell in doubled for entry in cell.entries]
        targets = _start(entries, other, folder, cores, upstream, exits)
        bench = Bench(exits.enter_context(running_generator(cores)), upstream, size)
        found = []
        for cell in doubled:
            figures: list[Figure] = []
            for number in range(1, size.rounds + 1):
                figures += one_round(bench, cell, targets, number)
                print(f"{cell.name}: round {number} of {size.rounds}", file=sys.stderr, flush=True)
            names = (entry.name.removeprefix(f"{OURS} ") for entry in cell.entries if entry.name.startswith(OURS))
            found += [Ratio.of(cell.name, name, figures) for name in names]
        return found


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests --against", description=__doc__)
    parser.add_argument("--against", type=Path, required=True, help="another checkout of this repository")
    parser.add_argument("--cells", default="1k", help="of loadtests/README.md; default 1k")
    parser.add_argument("--concurrency", type=int, action="append", help="default 16; repeatable")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help=f"default {LEAST_ROUNDS}")
    parser.add_argument("--requests", type=int, default=18_000, help="of a cell and row, over all rounds")
    parser.add_argument("--tolerance", type=float, default=2.0, help="percent")
    given = parser.parse_args(list(words))
    if not (given.against / "gateway" / "app.py").is_file():
        parser.error(f"{given.against} is no checkout of the gateway")
    size = replace(Size(), rounds=given.rounds, requests=given.requests)
    ratios = compare(chosen(given.cells, tuple(given.concurrency or (16,))), given.against.resolve(), size)
    print(f"{REPOSITORY} ÷ {given.against}, median (least–most) of {given.rounds} rounds")
    for ratio in ratios:
        print(ratio.line())
    return int(any(ratio.dearer(given.tolerance) or ratio.void for ratio in ratios))
