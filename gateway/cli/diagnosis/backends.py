"""`thriftgate backends`: lists the backends that the gateway uses, and tests whether they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from gateway.backends.providers.discover import backends_of
from gateway.backends.reachability import Reached, reach_all
from gateway.cli import tables
from gateway.cli.diagnosis.drained import Drained, drained, sentences
from gateway.cli.diagnosis.reached import mark
from gateway.cli.echo import echo
from gateway.cli.operation.add_backend import add
from gateway.cli.options import Context, common
from gateway.cli.zones import zones
from gateway.domain.backend import Backend
from gateway.domain.money.windows import iso
from gateway.ledger.prices.model_names import equal, grouped
from gateway.ledger.prices.price_book import PriceBook
from gateway.settings.gateway import Settings
from gateway.settings.remedies import did_you_mean
from gateway.settings.running import local_model_url

NONE = (
    "No backend: export a provider's key or start a model server, then `thriftgate backends add` writes gateway.yaml."
)


@click.group()
def backends() -> None:
    """List the backends of gateway.yaml, or else those found on this machine; test them; add one."""


backends.add_command(add)


@backends.command("list", short_help="List them with model, strength, location and price.")
@common
def list_(context: Context) -> None:
    """List the backends with model, strength, location and price, and those that are drained."""
    settings = context.of_running()
    found, book = asyncio.run(known(settings)), PriceBook.of(settings)
    held = drained(settings)
    rows = [_facts(backend, book, held) for backend in map(book.complete, found)]
    notes = [*sentences(held, zones(settings)("")), *one_model(found)]
    context.print(rows, lambda: _show(rows, notes) if rows else echo(NONE))


@backends.command(short_help="Test whether they answer, accept their keys, have their models.")
@common
@click.argument("names", nargs=-1)
def test(context: Context, names: tuple[str, ...]) -> None:
    """Test backends: does each answer, accept its key, and have its model? NAMES selects some; default: all.

    Each backend gets one request, for its list of models. The request costs nothing and contains no prompt. Exit
    status: 1 when a backend would fail.

    \b
    thriftgate backends test
    """
    found = asyncio.run(known(context.of_running(keys=True)))
    present = sorted(backend.name for backend in found)
    for name in names:
        if name not in present:
            near = did_you_mean(name, present, f"there are {', '.join(present) or 'none'}")
            raise click.BadParameter(f"there is no backend called {name!r}; {near}", param_hint="NAMES")
    with tables.working("asking the backends"):
        reached = asyncio.run(reach_all([backend for backend in found if not names or backend.name in names]))
    context.print([asdict(each) for each in reached], lambda: show_reached(reached) if reached else echo(NONE))
    if not reached or any(each.trouble for each in reached):
        raise SystemExit(1)


async def known(settings: Settings) -> Sequence[Backend]:
    """The backends in gateway.yaml. If gateway.yaml has no list of backends, those found on this machine."""
    found = await backends_of(settings.config, local_model_url(settings.paths))
    return grouped(found, settings.config.model_groups)


def one_model(backends: Sequence[Backend]) -> list[str]:
    """A line for each model that several backends serve without having the same `model_group`."""
    return [
        f"{', '.join(each.name for each in several)} serve the same model ({model}); "
        "a common `model_group`, or `model_groups: auto`, sends each request to the cheapest of them"
        for model, several in equal(backends).items()
    ]


def show_reached(reached: Sequence[Reached]) -> None:
    for each in reached:
        echo(mark(each))


def _facts(backend: Backend, book: PriceBook, held: Drained) -> dict[str, Any]:
    price = book.price(backend)
    if price is None:
        cost = "simulated" if backend.simulated else "unknown"
    elif backend.price and backend.price.machine_hour_usd:
        cost = f"{backend.price.machine_hour_usd:f}/hour"
    else:
        cost = f"{_per_million(price.input)} in, {_per_million(price.output)} out"
    return {
        "name": backend.name,
        "kind": backend.kind,
        "model": backend.model,
        "model_group": backend.model_group,
        "tier": backend.tier,
        "location": "hosted" if backend.hosted else "local",
        "usd_per_million_tokens": cost,
        "context_window": backend.window_tokens,
        "drained_until": iso(held[backend.name][0]) if backend.name in held else None,
    }


def _per_million(pico: int) -> str:
    return f"{pico / 10**6:g}"


def _show(rows: list[dict[str, Any]], notes: Sequence[str]) -> None:
    table = tables.Table("backend", "kind", "model", "tier", "prompts", "price in USD")
    for row in rows:
        where = "leave" if row["location"] == "hosted" else "stay"
        model = "" if row["model"] == row["name"] else row["model"]
        name = row["name"] + (" (drained)" if row["drained_until"] else "")
        price = row["usd_per_million_tokens"]
        unit = " per 1M tokens" if " in, " in price else ""
        table.add_row(name, row["kind"], model, row["tier"], where, price + unit)
    tables.console(highlight=False).print(table)
    for note in notes:
        echo(note)
