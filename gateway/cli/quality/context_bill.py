"""`thriftgate context bill`: computes the cost of a file of requests by the rules of providers' prompt caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli import tables
from gateway.cli.options import Context, common
from gateway.context.bill.price_file import load_prices, price_of
from gateway.context.bill.sent import Billed, bill_sent
from gateway.context.bill.sessions import Session, read_sessions
from gateway.context.count import Counter
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.units import pico_to_usd
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports.formats import cents_of

_FILE = click.Path(path_type=Path)


@click.command()
@common
@click.argument("sent", type=_FILE)
@click.option("--sessions", type=_FILE, required=True, help="The recorded sessions that the requests belong to.")
@click.option("--prices", type=_FILE, help="Prices by model, as JSON; default: the packaged ones.")
def bill(options: Context, sent: Path, sessions: Path, prices: Path | None) -> None:
    """Compute what recorded requests cost, by providers' cache rules.

    The rules include cache reads and writes, lifetimes and minimum prefixes. No provider is called.

    SENT: one request per line, as `context replay` writes them.

    \b
    thriftgate context bill sent.jsonl --sessions sessions.jsonl.xz --prices prices.json
    """
    try:
        known = {session.id: session for session in read_sessions(sessions)}
        billed = list(bill_sent(_rows(sent), known, prices_by_model(prices), Counter().count))
    except OSError as error:
        raise click.ClickException(f"{error.filename}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError) as error:
        raise click.ClickException(f"{sent}: {error}") from error
    values = summary(billed, known)
    options.print(values, lambda: _show(values))


def prices_by_model(path: Path | None) -> Callable[[str], Price | None]:
    """Make a function that returns the price of a model. The prices come from the file at `path`. Without a file, they
    come from the packaged list, with Anthropic and OpenAI as providers."""
    if path is not None:
        prices = load_prices(path)
        return lambda model: price_of(prices, model)
    book = PriceBook.load()
    return lambda model: book.price(provider_backend(model))


def provider_backend(model: str) -> Backend:
    """A backend for a model at the model's own provider."""
    if "claude" in model.lower():
        return Backend(name="provider", kind="anthropic", base_url="https://api.anthropic.com/v1", model=model)
    return Backend(name="provider", kind="openai", base_url="https://api.openai.com/v1", model=model)


def summary(billed: list[Billed], sessions: dict[str, Session]) -> dict[str, Any]:
    """The totals of all requests and of each session. If the recording contains the provider's own usage, the totals
    also contain the provider's numbers of cache reads and writes."""
    by_session: dict[str, list[Billed]] = {}
    for each in billed:
        by_session.setdefault(each.id, []).append(each)
    return {
        **_totals(billed),
        "sessions": [{"id": name, "model": sessions[name].model, **_totals(of)} for name, of in by_session.items()],
    }


def _totals(billed: list[Billed]) -> dict[str, Any]:
    reported = [(each.usage, each.reported) for each in billed if each.reported]
    return {
        "requests": sum(each.turn is not None for each in billed),
        "keep_alives": sum(each.turn is None for each in billed),
        "usd": pico_to_usd(sum(each.total_pico for each in billed)),
        "input_tokens": sum(each.usage.input_tokens for each in billed),
        "cached_tokens": sum(each.usage.cached_tokens for each in billed),
        "cache_write_5m_tokens": sum(each.usage.cache_write_5m_tokens for each in billed),
        "cache_write_1h_tokens": sum(each.usage.cache_write_1h_tokens for each in billed),
        "output_tokens": sum(each.usage.output_tokens for each in billed),
        "reported_requests": len(reported),
        "reported_read_tokens": sum(said.get("cache_read", 0) for _, said in reported),
        "billed_read_tokens": sum(usage.cached_tokens for usage, _ in reported),
        "reported_input_tokens": sum(_input_tokens(said) for _, said in reported),
        "billed_input_tokens": sum(usage.all_input for usage, _ in reported),
    }


def _input_tokens(said: dict[str, int]) -> int:
    """The number of all input tokens that the provider reported. `cache_write` already includes the writes with a
    lifetime of one hour."""
    return said.get("input_tokens", 0) + said.get("cache_read", 0) + said.get("cache_write", 0)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)


def _show(values: dict[str, Any]) -> None:
    columns = (
        "requests",
        "usd",
        "input_tokens",
        "cached_tokens",
        "cache_write_5m_tokens",
        "cache_write_1h_tokens",
        "output_tokens",
    )
    titles = (name.removesuffix("_tokens").replace("_", " ") for name in columns)
    table = tables.Table("session", *tables.numbers(*titles), title=f"{cents_of(values['usd'])} USD in all; tokens")
    for row in (*values["sessions"], {"id": "all", **values}):
        cells = (cents_of(row[name]) if name == "usd" else f"{row[name]:,}" for name in columns)
        table.add_row(row["id"], *cells)
    tables.console(highlight=False).print(table)
