"""Measures from the ledger's attempts how many tokens per second machines with an hourly price process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import partial

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.backend import Backend
from gateway.domain.protocols import Clock
from gateway.ledger.prices.price_book import READING_SHARE, PriceBook, prior
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger

log = logging.getLogger(__name__)

WINDOW_S = 900.0
PRIOR_S = 60
"""Weight of the configured or assumed throughput, in seconds: in the mean, it counts as much as a measurement of this
duration."""
EVERY_S = 60.0
MOST_ATTEMPTS = 5000
_DIGITS = 2
"""Number of significant digits after the first digit. So changes below one percent do not change the price."""


async def follow(database: Database, backends: Sequence[Backend], prices: PriceBook, clock: Clock) -> None:
    """Measure the throughput of the machines again and again, and store it in `prices`. While the database is
    unavailable, the stored throughput does not change."""
    machines = [backend for backend in backends if backend.price and backend.price.machine_hour_usd]
    while machines:
        try:
            read = partial(measured, backends=machines, now=clock.time())
            prices.learn(await database.run(read, writes=False))
        except SQLAlchemyError as error:
            log.warning("the throughput of machines cannot be measured: %s", error)
        await asyncio.sleep(EVERY_S)


def measured(connection: Connection, backends: Iterable[Backend], now: float) -> dict[str, Decimal]:
    """The measured throughput: backend → tokens per second of busy time in the last 15 minutes. An output token has
    weight 1, an input token 0.1. The configured throughput is included with a weight of `PRIOR_S` seconds. Time in
    which several attempts ran counts once, so that the costs of all rows add up to the machine's price."""
    found = {}
    for backend in backends:
        attempts = _attempts(connection, backend.name, now - WINDOW_S)
        if attempts:
            tokens = sum((weight for _, _, weight in attempts), Decimal(0))
            busy = Decimal(str(busy_s((begin, end) for begin, end, _ in attempts)))
            found[backend.name] = _rounded((prior(backend) * PRIOR_S + tokens) / (PRIOR_S + busy))
    return found


def busy_s(spans: Iterable[tuple[float, float]]) -> float:
    """The number of seconds that are in at least one of `spans` (begin, end)."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _attempts(connection: Connection, backend: str, since: float) -> list[tuple[float, float, Decimal]]:
    """The attempts of `backend` since `since`, each as (begin, end, weighted tokens). Times are in Unix seconds. If
    there are more than `MOST_ATTEMPTS`, only the latest are returned."""
    c = ledger.c
    sent = (
        c.input_tokens + c.cached_tokens + c.cache_write_5m_tokens + c.cache_write_1h_tokens
        + c.audio_input_tokens + c.image_input_tokens
    )  # fmt: skip
    came = c.output_tokens + c.reasoning_tokens + c.audio_tokens + c.image_tokens
    query = (
        select(c.at, c.waited_ms, c.duration_ms, sent, came)
        .where(c.at >= since, c.backend == backend, c.attempt > 0, c.duration_ms.is_not(None), sent + came > 0)
        .order_by(c.at.desc())
        .limit(MOST_ATTEMPTS)
    )
    rows = [(at + waited_ms / 1000, *rest) for at, waited_ms, *rest in connection.execute(query)]
    return [(began, began + ms / 1000, int(came) + int(sent) * READING_SHARE) for began, ms, sent, came in rows]


def _rounded(rate: Decimal) -> Decimal:
    return round(rate, _DIGITS - rate.adjusted())
