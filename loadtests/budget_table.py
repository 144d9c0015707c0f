"""The budget experiment as a table, as JSON and as a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from loadtests.budget import Options, Outcome

WIDTH = 150


def write(options: Options, outcomes: Sequence[Outcome], out: Path, *, as_json: bool) -> None:
    """`budget.json`, `budget.txt` and, with matplotlib, `budget.png` in `out`; the table or the JSON is printed."""
    out.mkdir(parents=True, exist_ok=True)
    found = {"options": asdict(options), "outcomes": [{**asdict(one), "passed": one.passed} for one in outcomes]}
    text = orjson.dumps(found, option=orjson.OPT_INDENT_2)
    (out / "budget.json").write_bytes(text)
    with (out / "budget.txt").open("w", encoding="utf-8") as file:
        Console(file=file, width=WIDTH).print(_table(options, outcomes))
    if as_json:
        sys.stdout.write(text.decode() + "\n")
    else:
        Console(width=None if sys.stdout.isatty() else WIDTH).print(_table(options, outcomes))
    try:
        _draw(options, outcomes, out / "budget.png")
    except ImportError:
        print("No plot: matplotlib is not installed (pip install 'thriftgate[loadtest]').", file=sys.stderr)


def _table(options: Options, outcomes: Sequence[Outcome]) -> Table:
    title = (
        f"{options.budget} tokens (as {options.unit}), {options.streams} streams over {options.workers} workers, "
        f"a token every {options.pace_ms:g} ms, seed {options.seed}"
    )
    table = Table(title=title)
    for name in (
        *("", "overshoot", "usable", "false refusals", "refusals", "answers", "whole", "truncated", "unsettled"),
        "bar",
    ):
        table.add_column(name, justify="left" if not name else "right")
    for one in outcomes:
        table.add_row(
            one.name,
            f"{one.overshoot:+.3%}",
            f"{one.usable:.2%}",
            *(str(number) for number in (one.false_refusals, one.refusals, one.answers, one.whole, one.truncated)),
            str(one.unsettled),
            ("met" if one.passed else "MISSED") if one.judged else "simulated",
        )
    return table


def _draw(options: Options, outcomes: Sequence[Outcome], path: Path) -> None:
    """What the provider delivered and how many streams were open, over time. Raises ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(10, 8), sharex=True, layout="constrained")
    for one in outcomes:
        at, delivered, streams = zip(*one.curve, strict=True)
        style = "-" if one.judged else ":"
        above.plot(at, delivered, style, label=one.name)
        below.plot(at, streams, style, label=one.name)
    above.axhline(options.budget, color="#cb181d", linestyle="--", linewidth=1, label="budget")
    above.set_ylabel("tokens delivered")
    below.set_ylabel("streams open")
    below.set_xlabel("seconds")
    above.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
