"""`thriftgate reconcile`: compares a provider's figures with those of the ledger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import click

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.domain.units import parse_usd, usd_to_pico
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports import invoices
from gateway.ledger.reports.formats import cents_of
from gateway.ledger.reports.reconcile import as_object
from gateway.ledger.reports.reconcile import reconcile as compare
from gateway.ledger.store.sums import snapshot

MOST_SHOWN = 50


@click.command()
@common
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--provider",
    "dialect",
    type=click.Choice(get_args(invoices.Dialect)),
    required=True,
    help="The provider that exported FILE.",
)
@click.option("--backend", "backends", multiple=True, help="Compare with these backends only. Repeatable.")
@click.option(
    "--tolerance",
    default="0.005",
    show_default=True,
    help="USD by which a line may differ from the ledger, because invoices are rounded.",
)
def reconcile(
    context: Context, file: Path, dialect: invoices.Dialect, backends: tuple[str, ...], tolerance: str
) -> None:
    """Compare a provider's export of usage or cost with the ledger.

    FILE is CSV with a header, a JSON list, or a page of OpenAI's or Anthropic's usage and cost APIs. Each line needs a
    time (date, start_time, starting_at …) and may have: model, request_id, requests, input_tokens, output_tokens,
    cost_usd.

    If every line has request_id (the header x-request-id), single requests are compared. Otherwise the sums of each
    model on each day (UTC) are compared.

    \b
    thriftgate reconcile usage.csv --provider openai
    thriftgate reconcile invoice.json --provider generic --backend mistral-large --json

    Exit status: 0 when everything matched, 1 otherwise.
    """
    settings = context.of_running()
    try:
        tolerance_pico = usd_to_pico(parse_usd(tolerance))
    except ValueError as error:
        raise click.UsageError(f"--tolerance {error}") from error
    catalogue, configured = PriceBook.of(settings), settings.config.backends or ()
    names = backends or [one.name for one in configured if dialect in ("generic", catalogue.provider(one))]
    with open_database(settings, existing=True) as database, snapshot(database) as connection:
        listed = "" if backends else dialect
        found = compare(connection, invoices.read(file, dialect), names, listed, tolerance_pico=tolerance_pico)
    values = as_object(found)
    context.print(values, lambda: _show(values))
    if any(count for kind, count in found.counts.items() if kind != "matched"):
        sys.exit(1)


def _show(values: dict[str, Any]) -> None:
    console = tables.console()
    title = f"By {values['by']}; difference: invoice minus ledger"
    table = tables.Table("", *tables.numbers("", "input", "output", "USD"), title=title)
    for pair in values["pairs"][:MOST_SHOWN]:
        table.add_row(pair["name"], pair["kind"], *_figures(pair["difference"]))
    for name, side in values["total"].items():
        table.add_row("total", name, *_figures(side), style="bold")
    console.print(table)
    if len(values["pairs"]) > MOST_SHOWN:
        echo(f"{len(values['pairs']) - MOST_SHOWN} more with --json.")
    echo(", ".join(f"{kind}: {count}" for kind, count in values["counts"].items()) + ".")
    if values["unpriced"]:
        echo(f"The ledger has {values['unpriced']} attempts without a price; reprice them first.")


def _figures(side: dict[str, Any]) -> list[str]:
    tokens = ["–" if side[name] is None else f"{side[name]:,}" for name in ("input_tokens", "output_tokens")]
    return [*tokens, "–" if side["usd"] is None else cents_of(side["usd"])]
