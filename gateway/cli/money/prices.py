"""`thriftgate prices`: shows the price list and the backends' prices, and updates the list."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.repricing import list_unpriced, reprice
from gateway.cli.options import Context, common
from gateway.domain.money.price import Price
from gateway.domain.money.price_classes import OPTIONAL, Classes
from gateway.domain.units import pico_to_usd
from gateway.ledger.prices import litellm_map
from gateway.ledger.prices.catalogue import Catalogue, ListedPrice, load_own
from gateway.ledger.prices.price_book import PriceBook

_UNPRICED = ("unpriced: give backends.price in gateway.yaml", "simulated, in no total")
WIDE = 120
"""Columns of a terminal that shows all prices of `prices list`."""
NAMED = 5
"""Maximum models in the line about models that the map does not have."""
_USUAL = ("input", "output", *OPTIONAL)


@click.group()
def prices() -> None:
    """Show and update the prices of models."""


prices.add_command(list_unpriced)
prices.add_command(reprice)


@prices.command("list")
@common
@click.argument("pattern", default="")
def list_prices(context: Context, pattern: str) -> None:
    """Show the price list, in USD per 1M tokens, and its sources.

    PATTERN, part of a model's name, filters the list. --json prints everything: prices of cache, batch, long context,
    regions and service tiers, and for each price its source page.

    \b
    thriftgate prices list gpt-4o
    """
    entries = [
        (listed, price)
        for listed, price in PriceBook.of(context.settings()).entries()
        if pattern.lower() in listed.name.lower()
    ]
    rows = [_entry(listed, price) for listed, price in entries]
    console = tables.console()
    wide = console.width >= WIDE
    title = "USD per 1M tokens; batch and long: input / output" if wide else "USD per 1M tokens; more in --json"
    more = (*tables.numbers("batch", "long", "as of"), *tables.prose("service tiers")) if wide else ()
    table = tables.Table("model", *tables.numbers("input", "cached", "output"), *more, title=title)
    for listed, price in entries:
        usual = (f"{listed.input:f}", _or_dash(listed.cached_input), f"{listed.output:f}")
        rest = (_pair(listed.batch), _above(listed), price.as_of, _tiers(price)) if wide else ()
        table.add_row(listed.name, *usual, *rest)
    context.print(rows, lambda: console.print(table))


@prices.command("check")
@common
def check_prices(context: Context) -> None:
    """Show the price of each backend in gateway.yaml and its source.

    Discounts, regions and the operator's own entries are applied. A backend without a price is listed as unpriced: its
    cost is in no total and no budget.
    """
    settings = context.settings()
    catalogue = PriceBook.of(settings)
    rows = []
    for backend in settings.config.backends or ():
        price = catalogue.price(backend)
        rows.append(
            {
                "backend": backend.name,
                "input": None if price is None else f"{pico_to_usd(price.input * 10**6):f}",
                "output": None if price is None else f"{pico_to_usd(price.output * 10**6):f}",
                "source": price.source if price else _UNPRICED[backend.simulated],
            }
        )
    figures = tables.numbers("input", "output")
    table = tables.Table("backend", *figures, *tables.prose("source"), title="USD per 1M tokens")
    for row in rows:
        table.add_row(*(text or "–" for text in row.values()))
    context.print(rows, lambda: tables.console().print(table) if rows else echo("No backends in gateway.yaml."))


_from = click.option(
    "--from", "source", type=click.Path(path_type=Path), metavar="FILE",
    help="litellm's map of prices (JSON); default: the one in the installed litellm.",
)  # fmt: skip


@prices.command("diff")
@common
@_from
def diff_prices(context: Context, source: Path | None) -> None:
    """Show where the prices in litellm's map differ from our list. Writes nothing.

    The map is read as plain JSON; litellm itself is not imported and need not be installed.
    """
    found, path = _compared(context, source)
    context.print(_comparison(found, path), lambda: _show(found, path))


@prices.command("update")
@common
@_from
@click.option("--new", "with_new", is_flag=True, help="Also add models that our list does not have.")
def update_prices(context: Context, source: Path | None, with_new: bool) -> None:
    """Replace prices of the packaged list by litellm's newer prices.

    Writes prices.json in the data directory, which a gateway reads at its start.

    Refused, with file and key, are prices that are missing, negative, more than ten times the old one, or less than a
    tenth of it.

    Exit status: 1 when a price that should have been written was refused, 0 otherwise.
    """
    found, path = _compared(context, source)
    target = context.settings().paths.prices
    changes = tuple(change for change in found.changes if with_new or not change.new)
    if changes:
        before = load_own(target)
        content = litellm_map.own_file(changes, before.models if before else (), str(path), _today())
        _write(target, content)
    refused = [one.text for one in found.refused if with_new or one.known]
    values = {"written": [change.listed.name for change in changes], "file": str(target), "refused": refused}
    lines = [f"refused: {line}" for line in refused] + [f"{len(changes)} prices written to {target}."]
    context.print(values, "\n".join(lines))
    if refused:
        sys.exit(1)


def _compared(context: Context, source: Path | None) -> tuple[litellm_map.Comparison, Path]:
    path = source or litellm_map.installed()
    if path is None:
        raise click.UsageError("litellm is not installed; give a copy of its map with --from FILE.")
    register = Catalogue.load(own=context.settings().paths.prices)
    return litellm_map.compare(register, litellm_map.read(path), str(path), _today()), path


def _write(target: Path, content: bytes) -> None:
    """Replace the content of the file atomically."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = target.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(target)


def _comparison(found: litellm_map.Comparison, path: Path) -> dict[str, Any]:
    return {
        "from": str(path),
        "same": found.same,
        "changed": {change.listed.name: change.differs for change in found.changes if not change.new},
        "new": [change.listed.name for change in found.changes if change.new],
        "gone": found.gone,
        "refused": [one.text for one in found.refused],
    }


def _show(found: litellm_map.Comparison, path: Path) -> None:
    lists = tables.prose("our list", "the map")
    table = tables.Table("model", "price", *lists, title="USD per 1M tokens")
    for change in found.changes:
        for what, (was, now) in change.differs.items():
            table.add_row(change.listed.name, what, _text(was), _text(now))
    new = sum(change.new for change in found.changes)
    tables.sentences(f"The map: {path}")
    if table.row_count:
        tables.console().print(table)
    for one in found.refused:
        if one.known:
            tables.sentences(f"refused: {one.text.removeprefix(f'{path}: ')}")
    if found.gone:
        tables.sentences(f"Not in the map: {_some(found.gone)}.")
    unknown = sum(not one.known for one in found.refused)
    tables.sentences(f"The same: {found.same}. Not in our list: {new}, and {unknown} without usable prices (--json).")


def _some(names: Sequence[str]) -> str:
    """The first `NAMED` names, followed by the number of the other names."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more (--json)" if more > 0 else "")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {text}" for name, text in value.items())
    return "–" if value is None else str(value)


def _entry(listed: ListedPrice, price: Price) -> dict[str, Any]:
    classes = {name: _or_none(getattr(listed, name)) for name in _USUAL}
    tiers = {"batch": _classes(listed.batch), "beyond": _classes(listed.beyond)}
    if listed.beyond is not None and tiers["beyond"] is not None:
        tiers["beyond"]["tokens"] = listed.beyond.tokens
    return {
        "model": listed.name,
        **classes,
        **tiers,
        "service_tiers": {name: _at(tier) for name, tier in price.tiers.items() if _named(name)},
        "regions": {region: f"{factor:f}" for region, factor in listed.regions.items()},
        "window_tokens": listed.window_tokens,
        "valid_from": listed.valid_from and listed.valid_from.isoformat(),
        "as_of": price.as_of,
        "source": price.source,
        "page": listed.source,
    }


def _classes(classes: Classes | None) -> dict[str, Any] | None:
    if classes is None:
        return None
    return {name: f"{usd:f}" for name in _USUAL if (usd := getattr(classes, name)) is not None}


def _or_none(usd: Decimal | None) -> str | None:
    return None if usd is None else f"{usd:f}"


def _or_dash(usd: Decimal | None) -> str:
    return _or_none(usd) or "–"


def _pair(classes: Classes | None) -> str:
    return "–" if classes is None else f"{classes.input:f} / {classes.output:f}"


def _tiers(price: Price) -> str:
    """The prices of the service tiers as text (input / output), such as `priority 3.5 / 14, flex 1 / 4`. Combinations
    of tiers are shown only with --json."""
    named = ((name, tier) for name, tier in price.tiers.items() if _named(name) and "+" not in name)
    return ", ".join(f"{name} {_usd(tier.input)} / {_usd(tier.output)}" for name, tier in named) or "–"


def _named(tier: str) -> bool:
    """Whether the tier is listed among the service tiers. Batch prices have a column of their own, so the tier `batch`
    is not listed."""
    return "batch" not in tier.split("+")


def _at(tier: Price) -> dict[str, Any]:
    found: dict[str, Any] = {name: _usd(pico) for name in _USUAL if (pico := getattr(tier, name)) is not None}
    if tier.beyond is not None:
        found["beyond"] = {"tokens": tier.beyond[0], **_at(tier.beyond[1])}
    return found


def _usd(pico: int) -> str:
    """Format a price in USD per 1M tokens."""
    return f"{pico_to_usd(pico * 10**6):f}"


def _above(listed: ListedPrice) -> str:
    return "–" if listed.beyond is None else f"{_pair(listed.beyond)} >{listed.beyond.tokens // 1000}k"


def _today() -> date:
    return datetime.now(UTC).date()
