"""Computes prices for ledger rows that have none. Rows never change; so a new row with a price replaces (supersedes)
the old row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime

from gateway.domain.backend import Backend
from gateway.domain.money.unpriced import unpriced_units
from gateway.domain.protocols import PriceList
from gateway.ledger.prices.applied import Terms
from gateway.ledger.rows import MOST_PICO, Row


def repriced(
    rows: Iterable[Row], prices_on: Callable[[date], PriceList], backends: Mapping[str, Backend]
) -> Iterator[Row]:
    """Yield a new row with a price for each of `rows` that can be priced. The new row supersedes the old one.
    `prices_on(day)`: returns the price list of that day (UTC). A row is skipped if its backend no longer exists or has
    another model now."""
    for row in rows:
        backend = backends.get(row.backend)
        if backend is None or backend.model != row.model:
            continue
        price = prices_on(datetime.fromtimestamp(row.called_at, UTC).date()).price(backend)
        if price is None:
            continue
        usage = row.usage
        cost, units = min(price.cost(usage), MOST_PICO), unpriced_units(price, usage)
        if cost != row.cost_pico or units != row.unpriced:
            prices, source = Terms(price).billed(usage)
            yield row._replace(
                id=_next_id(row.id),
                cost_pico=cost,
                price_source=source,
                prices=prices,
                unpriced=units,
                supersedes=row.id,
            )


def _next_id(id: str) -> str:
    """The id of the row that supersedes the row `id`: `req_1-1` → `req_1-1~1` → `req_1-1~2`. The same row always gets
    the same successor."""
    first, _, times = id.partition("~")
    return f"{first}~{int(times or 0) + 1}"
