"""The hard mix as a line a run, as a table and as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtests.budget_hard import Options, Outcome

HEAD = (
    "seed      killed overshoot  usable  unsettled    diff $   unread   silent    later  false  refused unbounded"
    "  calls  whole escalated  capped  seconds  bar"
)

_KINDS = {"undisturbed": False, "killed": True}


def line(one: Outcome) -> str:
    return (
        f"{one.seed:<9} {'yes' if one.killed else 'no':<6} {one.overshoot:>+9.3%} {one.usable:>7.2%} "
        f"{one.unsettled:>+10.3%} {one.unsettled_usd:>+9.4f} {one.unread:>8.3%} {one.silent:>8.3%} {one.later:>8.3%} "
        f"{one.false_refusals:>6} {one.refusals:>8} {one.unbounded_refusals:>9} {one.calls:>6} {one.whole:>6} "
        f"{one.escalated:>9} {one.capped:>7} {one.seconds:>8.1f}  {', '.join(one.missed) or 'met'}"
    )


def table(outcomes: Sequence[Outcome]) -> str:
    kinds = {name: [one for one in outcomes if one.killed is killed] for name, killed in _KINDS.items()}
    return "\n".join([HEAD, *map(line, outcomes), *(_total(name, some) for name, some in kinds.items() if some)])


def _total(name: str, some: Sequence[Outcome]) -> str:
    usable = [one.usable for one in some]
    return (
        f"{name}: {len(some)} runs, worst overshoot {max(one.overshoot for one in some):+.3%}, usable "
        f"{statistics.median(usable):.2%} ({min(usable):.2%}–{max(usable):.2%}), unsettled "
        f"{min(one.unsettled for one in some):+.3%} to {max(one.unsettled for one in some):+.3%}, "
        f"{sum(one.false_refusals for one in some)} false refusals, {sum(one.calls for one in some)} calls, "
        f"{sum(bool(one.missed) for one in some)} runs missed a bar"
    )


def draw(options: Options, outcomes: Sequence[Outcome], path: Path) -> None:
    """Dollars that the provider billed and calls under way, over time. Raises ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(10, 8), sharex=True, layout="constrained")
    for one in outcomes:
        if not one.curve:
            continue
        at, billed, under_way = zip(*one.curve, strict=True)
        style, label = ":" if one.killed else "-", f"seed {one.seed}{', a worker killed' if one.killed else ''}"
        above.plot(at, billed, style, label=label, linewidth=1)
        below.plot(at, under_way, style, linewidth=1)
    above.axhline(options.limit_usd, color="#cb181d", linestyle="--", linewidth=1, label="limit")
    above.set_ylabel("USD billed by the provider")
    below.set_ylabel("calls under way")
    below.set_xlabel("seconds")
    if len(outcomes) <= 12:
        above.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
