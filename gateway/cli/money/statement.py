"""Prints the text below the table of `thriftgate usage`: budgets, credits, wrong cache hits and savings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.text import Text

from gateway.api.routes.usage import Spent
from gateway.cli import tables
from gateway.cli.zones import ZoneOf, named_moment
from gateway.domain.units import cents


def show(found: Spent, console: Console, zone_of: ZoneOf) -> None:
    """Print the sections that are not empty: budgets, credits, wrong cache hits and savings. Times are in the time
    zones of the teams."""
    lines = (
        *(_budget(one, zone_of(one["team"] or "")) for one in found.budgets),
        *map(_credit, found.credits),
        *map(_objective, found.objectives),
        *map(_wrong_hits, found.wrong_hits),
    )
    for line in lines:
        console.print(Text(line))
    if found.savings is not None:
        _savings(found.savings, console)


def _budget(one: Mapping[str, Any], zone: tzinfo) -> str:
    unit = "usd" if "limit_usd" in one else "tokens"
    whose = one["subject"] or one["team"] or one["organisation"]
    spent, limit = (_amount(one[f"{what}_{unit}"], unit) for what in ("spent", "limit"))
    until = f" until {_at(one['end'], zone)}" if one["end"] else ""
    soft = "" if one["hard"] else ", not enforced"
    used = f"{spent} of {limit} ({tables.percent(one['used'])})"
    return f"Budget {one['budget']} of {whose}: {used}{until}{soft}.{_ahead(one, unit, zone)}"


def _ahead(one: Mapping[str, Any], unit: str, zone: tzinfo) -> str:
    ahead = one["forecast"]
    if not ahead:
        return ""
    text = ""
    if ahead[f"total_{unit}"] is not None:
        low, middle, high = (_amount(ahead[f"total_{unit}{which}"], unit) for which in ("_low", "", "_high"))
        text = f" Forecast: {middle} ({low} to {high}, four times in five)."
    if ahead["exhausted_at"] is not None:
        latest = _at(ahead["exhausted_at_high"], zone) if ahead["exhausted_at_high"] else "after its end"
        text += f" Used up at {_at(ahead['exhausted_at'], zone)} ({_at(ahead['exhausted_at_low'], zone)} to {latest})."
    return text


def _at(iso: str, zone: tzinfo) -> str:
    return named_moment(datetime.fromisoformat(iso).timestamp(), zone)


def _amount(value: Any, unit: str) -> str:
    return f"{value:,} tokens" if unit == "tokens" else f"{_usd(value)} USD"


def _usd(text: str | None) -> str:
    return "–" if text is None else cents(int(Decimal(text) * 10**12))


def _credit(one: Mapping[str, Any]) -> str:
    over = f", {_usd(one['over_usd'])} USD beyond it" if Decimal(one["over_usd"]) else ""
    return f"Credit {one['name']} ({one['of']}): {_usd(one['used_usd'])} of {one['usd']} USD used{over}."


def _objective(one: Mapping[str, Any]) -> str:
    name = f"Quality of {one['team']}, {one['class']}: objective {one['objective']:.1%}"
    if one["quality"] is None:
        return f"{name}, no answer was judged."
    burn = "" if one["burn_rate"] is None else f", burn rate {one['burn_rate']:.1f}"
    judged = f"{one['quality']:.1%} of {one['judged']:g} judged answers"
    return f"{name}, {one['state']}: {judged}, {one['error_budget_left']:.0%} of the error budget left{burn}."


def _wrong_hits(one: Mapping[str, Any]) -> str:
    looked = f"Semantic cache of {one['team']}: {one['hits']:,} hits in {one['lookups']:,} look-ups"
    called = f" {one['called_wrong']:,} were reported as wrong by clients." if one["called_wrong"] else ""
    if not one["checked"]:
        return f"{looked}; none was checked yet.{called}"
    low, high = one["interval"]
    measured = f"{one['wrong']:,} of {one['checked']:,} checked were wrong"
    share = f"{one['wrong_of_lookups']:.2%} of look-ups (95%: {low:.2%} to {high:.2%})"
    return f"{looked}; {measured}, which is {share} and {one['wrong_of_hits']:.1%} of hits.{called}"


def _savings(savings: Mapping[str, Any], console: Console) -> None:
    figures = tables.numbers("requests", "baseline", "cost", "of which overhead", "saved")
    table = tables.Table("team", "baseline model", *figures, title="Savings, USD")
    for row in _rows(savings["teams"]):
        table.add_row(*row)
    total = savings["total"]
    baseline, cost, saved = (_usd(total[f"{name}_usd"]) for name in ("baseline", "cost", "saved"))
    table.add_row("total", "", "", baseline, cost, "", saved, style="bold")
    console.print(table)
    for sentence in savings["method"]:
        console.print(Text(sentence))


def _rows(teams: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for one in teams:
        overhead = sum(map(Decimal, one["overhead_usd"].values()))
        figures = (_usd(one[f"{name}_usd"]) for name in ("baseline", "cost"))
        yield (
            one["team"], one["reference"] or "none has a price", f"{one['requests']:,}",
            *figures, _usd(f"{overhead:f}"), _usd(one["saved_usd"]),
        )  # fmt: skip
