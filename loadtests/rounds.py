"""Starts the targets that the chosen cells need, measures cell by cell, and ends everything again."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from loadtests import footprint, procfs, profiles
from loadtests.cells import Cell, Size
from loadtests.footprint import Extent, Footprint
from loadtests.measure import Bench, Figure, running_generator
from loadtests.peer import running_litellm
from loadtests.processes import Cores
from loadtests.profiles import Profile
from loadtests.targets import NotHere, Target, running_gateway, running_nginx, running_upstream

SETTLE_S = 30.0
"""Longest wait for what a target still does after it has said that it is ready."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run of the command does."""

    size: Size = field(default_factory=Size)
    cells: tuple[Cell, ...] = ()
    peers: tuple[str, ...] = ()
    footprint: Extent | None = None
    profile: bool = False


@dataclass(slots=True)
class Results:
    """Everything that a report is made of."""

    plan: Plan
    cores: Cores
    load_before: float = 0.0
    figures: list[Figure] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Target → why it was not run."""
    unfinished: list[str] = field(default_factory=list)
    """Cells that there was no time for."""
    printed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Target → the files it ran on."""
    footprint: Footprint | None = None
    profiles: list[Profile] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator allows."""

    seconds: float = 7200.0
    install_nginx: bool | None = None
    out: Path = Path()
    """Where profiles are written."""
    data: Path | None = None
    """Where the measured gateways keep their data; None: a temporary folder."""


def run(plan: Plan, limits: Limits, say: Callable[[str], None]) -> Results:
    """Measure every cell of `plan`; `say` is told how far it has come."""
    results, started = Results(plan, Cores.available()), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="thriftgate-loadtest-", dir=limits.data))
    try:
        with ExitStack() as exits:
            exits.callback(shutil.rmtree, folder, ignore_errors=True)
            _measure(results, limits, folder, exits, say, started)
    finally:
        results.seconds = time.monotonic() - started
    return results


def _measure(
    results: Results, limits: Limits, folder: Path, exits: ExitStack, say: Callable[[str], None], started: float
) -> None:
    plan, cores = results.plan, results.cores
    upstream = exits.enter_context(running_upstream(cores))
    targets = _start(results, limits, folder, exits, upstream, say)
    bench = Bench(exits.enter_context(running_generator(cores)), upstream, plan.size)
    results.load_before = procfs.load_average()
    for cell in plan.cells:
        if time.monotonic() - started > limits.seconds:
            results.unfinished.append(cell.name)
            continue
        for number in range(1, plan.size.rounds + 1):
            say(f"{cell.name}: round {number} of {plan.size.rounds}")
            results.figures += one_round(bench, cell, targets, number)
        if plan.profile and (target := _measured_gateway(cell, targets)):
            say(f"{cell.name}: profile")
            results.profiles.append(_profile(cell, target, bench, results, limits))
    if plan.footprint and time.monotonic() - started <= limits.seconds:
        results.footprint = footprint.measure(folder, cores, upstream, bench.generator, plan.footprint, say)
    elif plan.footprint:
        results.unfinished.append("footprint")


def _profile(cell: Cell, target: Target, bench: Bench, results: Results, limits: Limits) -> Profile:
    first = profiles.NUMBERS + len(results.profiles) * profiles.MOST
    return profiles.take(cell, target, bench.generator, limits.out, first)


def _measured_gateway(cell: Cell, targets: dict[str, Target]) -> Target | None:
    """The gateway that the cell is about."""
    return next(
        (targets[each.target] for each in cell.entries if each.target in targets and targets[each.target].data), None
    )


def one_round(bench: Bench, cell: Cell, targets: dict[str, Target], number: int) -> list[Figure]:
    """Every entry of the cell that has its target here, in an order of its own."""
    entries = [entry for entry in cell.entries if entry.target in targets]
    random.shuffle(entries)
    return [bench.measure(cell, entry, targets[entry.target], number) for entry in entries]


def _start(
    results: Results, limits: Limits, folder: Path, exits: ExitStack, upstream: int, say: Callable[[str], None]
) -> dict[str, Target]:
    """The targets that some cell needs; those that cannot be had are noted."""
    cores = results.cores
    starters: dict[str, Callable[[], AbstractContextManager[Target]]] = {
        "nginx": lambda: running_nginx(folder / "nginx", cores, upstream, install=limits.install_nginx),
        "thriftgate": lambda: running_gateway(folder / "thriftgate", cores, upstream),
        "everything": lambda: running_gateway(
            folder / "everything", cores, upstream, name="everything", everything=True
        ),
    }
    if "litellm" in results.plan.peers:
        starters["litellm"] = lambda: running_litellm(folder / "litellm", cores, upstream)
    needed = {entry.target for cell in results.plan.cells for entry in cell.entries}
    found = {"direct": Target("direct", upstream)}
    for name, starter in starters.items():
        if name not in needed:
            continue
        say(f"starting {name}")
        try:
            found[name] = exits.enter_context(starter())
            results.printed[name] = found[name].printed
            if (root := found[name].root) is not None:
                procfs.settled(root, SETTLE_S)
        except NotHere as error:
            results.missing[name] = str(error)
    return found
