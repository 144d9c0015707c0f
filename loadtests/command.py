"""From the command's options to a report on disk."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
from rich.console import Console

from loadtests import footprint, plot, report, rounds
from loadtests.cells import CONCURRENCIES, QUICK, Size, chosen
from loadtests.footprint import Extent
from loadtests.rounds import Limits, Plan

FOOTPRINT = "footprint"
"""Asked for by this name among the cells; part of a run of all cells."""

WIDTH = 180
"""Characters of a table where nobody's terminal says otherwise."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `thriftgate loadtest` takes; see its --help."""

    quick: bool = False
    cells: str = ""
    concurrency: Sequence[int] = ()
    rounds: int | None = None
    requests: int | None = None
    peers: Sequence[str] = ()
    install_nginx: bool | None = None
    profile: bool = False
    minutes: float = 120.0
    out: Path = Path("loadtest-results")
    data: Path | None = None
    as_json: bool = False


def plan(options: Options) -> Plan:
    """Raises ValueError for cells that there are not."""
    size = QUICK if options.quick else Size()
    size = replace(size, rounds=options.rounds or size.rounds, requests=options.requests or size.requests)
    wanted = [each.strip() for each in options.cells.split(",") if each.strip()]
    others = ",".join(each for each in wanted if each != FOOTPRINT)
    concurrencies = tuple(options.concurrency) or ((16,) if options.quick else CONCURRENCIES)
    cells = chosen(others, concurrencies) if others or not wanted else ()
    extent = (footprint.QUICK if options.quick else Extent()) if FOOTPRINT in wanted or not wanted else None
    return Plan(size, cells, tuple(options.peers), extent, options.profile)


def run(options: Options) -> int:
    """Measure, print, write; the exit status: 1 when something is void or a judged bar is missed."""
    made = plan(options)
    for folder in filter(None, (options.out, options.data)):
        folder.mkdir(parents=True, exist_ok=True)
    progress = Console(stderr=True)
    console = Console(stderr=options.as_json, width=None if sys.stdout.isatty() else WIDTH)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    limits = Limits(options.minutes * 60, options.install_nginx, options.out, options.data)
    with progress.status("starting") as status:
        results = rounds.run(made, limits, lambda text: _say(progress, status.update, text))
    report.show(results, console)
    text = orjson.dumps(report.as_json(results), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    (options.out / "loadtest.json").write_bytes(text)
    with (options.out / "loadtest.txt").open("w", encoding="utf-8") as file:
        report.show(results, Console(file=file, width=WIDTH))
    _draw(results, options.out, progress)
    if options.as_json:
        sys.stdout.write(text.decode() + "\n")
    return int(report.failed(results))


def _say(progress: Console, update: object, text: str) -> None:
    """A spinner for people, lines for logs."""
    if progress.is_terminal and callable(update):
        update(text)
    else:
        progress.print(text)


def _draw(results: rounds.Results, out: Path, progress: Console) -> None:
    try:
        written = plot.draw(results, out)
    except ImportError:
        progress.print("No plot: matplotlib is not installed (pip install 'thriftgate[loadtest]').")
        return
    names = ", ".join(path.name for path in (*written, out / "loadtest.json", out / "loadtest.txt"))
    progress.print(f"{out}: {names}")
