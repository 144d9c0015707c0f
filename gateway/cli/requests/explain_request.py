"""Finds the flight record of a request for the command `explain`."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from gateway.cli.money.storage import open_database
from gateway.ledger.prices.applied import per_million
from gateway.ledger.reports.requests import of_request
from gateway.ledger.reports.why import why
from gateway.ledger.store.archive import retold
from gateway.settings.gateway import Settings
from gateway.state.redis import own_socket
from gateway.state.redis.connection import State
from gateway.telemetry.flight import FlightRecords

ID = re.compile(r"req_[0-9a-f]{32}")
_LOOKS, _LOOK_S = 20, 0.05


def flight_of(settings: Settings, request_id: str) -> dict[str, Any] | None:
    """The decisions about a request and their results. They come from the request's flight record or, if there is none,
    from the ledger's rows. None if the ledger has no row of the request.

    The unit prices of each call are added, and the reasons that the ledger has.
    """
    with open_database(settings, existing=True) as database, database.read() as connection:
        rows = of_request(connection, request_id)
    if not rows:
        return None
    url = settings.config.state.redis_url or own_socket.url(settings.paths.socket)
    flight = asyncio.run(_stored(url, request_id, rows[0].team)) or retold(rows)
    flight["why"] = why(rows)
    prices = {row.id: row.prices for row in rows}
    for attempt in flight["attempts"]:
        attempt["usd_per_million_tokens"] = per_million(prices.get(attempt["id"], ""))
    return flight


async def _stored(url: str, request_id: str, team: str) -> dict[str, Any] | None:
    state = State(url, timeout_s=1.0)
    await state.open()
    try:
        for _ in range(_LOOKS):
            if state.healthy:
                return await FlightRecords(state).find(request_id, team)
            await asyncio.sleep(_LOOK_S)
        return None
    finally:
        await state.aclose()
