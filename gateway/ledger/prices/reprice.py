"""Prices rows that had no price: each is superseded by a new row; written rows are never changed."""

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
    """The rows that supersede those of `rows` whose price is known now, as of the day on which each began.

    Rows of backends that are not in `backends`, or whose price is still unknown or what it was, are left out.
    """
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
    """`req_1-1` → `req_1-1~1` → `req_1-1~2`; a repeated repricing gives the same id."""
    first, _, times = id.partition("~")
    return f"{first}~{int(times or 0) + 1}"
