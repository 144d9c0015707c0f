"""Formats the tables of `thriftgate router`. Costs are in US dollars per 1,000 requests; intervals are 95 %
intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from typing import TYPE_CHECKING

from gateway.cli import tables

if TYPE_CHECKING:
    from gateway.routing.fit.evaluation import SetReport
    from gateway.routing.fit.held_out import Kept
    from gateway.routing.fit.report import Report
    from gateway.routing.strategy.plan import Plan

_THOUSAND = "USD per 1,000 requests; intervals: 95 %"


def of_sets(reports: Iterable[SetReport]) -> tables.Table:
    """A table that shows how well difficulty orders the prompts of each set."""
    figures = tables.numbers("prompts", "weak", "strong", "APGR", "95 % interval", "abstained")
    table = tables.Table("set", *figures)
    for each in reports:
        qualities = (f"{each.weak:.3f}", f"{each.strong:.3f}", _figure(each.apgr))
        interval = "–" if isnan(each.low) else f"{each.low:.3f} – {each.high:.3f}"
        table.add_row(each.name, f"{each.prompts:,}", *qualities, interval, f"{each.abstained:.1%}")
    return table


def _figure(value: float) -> str:
    return "–" if isnan(value) else f"{value:.3f}"


def of_promises(found: Sequence[Kept]) -> tables.Table:
    """A table that compares a plan's promises with measured values: quality and cost."""
    figures = ("wanted", "reached", "interval", "calls", "plan", "hull", "saving", "interval")
    table = tables.Table(*tables.numbers(*figures), title=_THOUSAND)
    for each in found:
        reached = (f"{each.wanted:.4f}", f"{each.reached:.4f}", f"{each.reached_low:.4f} – {each.reached_high:.4f}")
        costs = (f"{each.usd * 1000:.4f}", f"{each.hull_usd * 1000:.4f}")
        saving = (f"{each.saving:+.1%}", f"{each.saving_low:+.0%} – {each.saving_high:+.0%}")
        table.add_row(*reached, f"{each.calls:.2f}", *costs, *saving)
    return table


def kept_promises(found: Sequence[Kept]) -> str:
    """A sentence that says at how many qualities a plan kept its promise."""
    short = [each for each in found if each.reached_high < each.wanted]
    return f"reached or within its interval at {len(found) - len(short)} of {len(found)} qualities"


def of_fit(shown: Report) -> tables.Table:
    """A table of the cheapest strategy for each quality."""
    figures = tables.numbers("quality", "strategy", "hull", "oracle", "saving", "interval")
    table = tables.Table(*figures, *tables.prose("models"), title=_THOUSAND)
    for each in shown.targets:
        oracle = "–" if each.oracle_usd is None else f"{each.oracle_usd * 1000:.4f}"
        costs = (f"{each.usd * 1000:.4f}", f"{each.hull_usd * 1000:.4f}", oracle)
        saving = (f"{each.saving:+.1%}", f"{each.low:+.0%} – {each.high:+.0%}")
        table.add_row(f"{each.quality:.4f}", *costs, *saving, each.strategy)
    return table


def of_plan(plan: Plan) -> tables.Table:
    """A table of a plan's strategies, as measured on prompts that were not used for fitting."""
    table = tables.Table(*tables.numbers("quality", "USD per 1,000 requests"), "kind", *tables.prose("strategy"))
    for one in plan.strategies:
        table.add_row(f"{one.quality:.4f}", f"{one.usd * 1000:.4f}", one.kind, one.description)
    return table
