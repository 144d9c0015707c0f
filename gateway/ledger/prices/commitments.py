"""Finds the backends whose calls are already paid by a commitment or by prepaid credit.

The money of a commitment is spent even if it is not used. So until the commitment is used up or ends, a further call
costs nothing more, and routing prefers these backends (see `gateway/routing/occupancy.py`). The ledger, budgets and
reports still count each call at its price, because the rest of the commitment is computed from these rows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.backend import Backend
from gateway.domain.protocols import Clock
from gateway.ledger.prices.discounts import drawn
from gateway.ledger.prices.price_book import PriceBook
from gateway.settings.prices import Credit
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Seconds between two readings of the balances. Calls in this time, and in the second until their rows are in the
database, may spend more than a balance has."""
_LEAST_PAUSE = 100
"""The pause is at least this number of times as long as the reading, so that a large ledger does not keep the database
busy."""


async def follow(
    database: Database, credits: Sequence[Credit], backends: Sequence[Backend], prices: PriceBook, clock: Clock
) -> None:
    """Read the use of the commitments again and again, and store in `prices` which backends are already paid. While the
    database is unavailable, no backend counts as paid."""
    providers = {backend.name: prices.provider(backend) for backend in backends}
    failing = False
    while True:
        began = time.monotonic()
        try:
            read = partial(prepaid, credits=credits, providers=providers, now=clock.time())
            prices.prepay(await database.run(read, writes=False))
            failing = False
        except SQLAlchemyError as error:
            prices.prepay(frozenset())
            if not failing:
                log.warning("the balances of commitments cannot be read: %s", error)
            failing = True
        await asyncio.sleep(max(EVERY_S, _LEAST_PAUSE * (time.monotonic() - began)))


def prepaid(
    connection: Connection, credits: Sequence[Credit], providers: Mapping[str, str], now: float
) -> frozenset[str]:
    """Names of the backends whose calls are paid by prepaid credits. A credit counts only if routing should prefer it,
    if it is valid at `now` (Unix seconds), and if it is not used up. `providers`: backend → provider."""
    today = datetime.fromtimestamp(now, UTC).date()
    valid = [credit for credit in credits if credit.preferred and credit.holds(today)]
    left = [each.credit for each in drawn(connection, valid, providers) if each.left_pico > 0]
    return frozenset(
        name
        for credit in left
        for name, provider in providers.items()
        if name == credit.backend or (provider and provider == credit.provider)
    )
