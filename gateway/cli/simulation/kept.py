"""Reads the samples that a team keeps (data.store_samples), with their cost and usage from the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, RowMapping, select

from gateway.cli.simulation.call import LoggedCall
from gateway.domain.money.usage import Usage
from gateway.ledger.rows import TOKENS
from gateway.ledger.store import samples
from gateway.ledger.store.entries import newest
from gateway.ledger.store.samples import KeptSample
from gateway.state.sql.tables import ledger

_AT_ONCE = 500
"""Maximum number of requests in one query, because databases limit the parameters of a query."""


def read(connection: Connection, team: str) -> list[LoggedCall]:
    """Read the requests of the samples that the team keeps, oldest first. A sample without a row in the ledger is left
    out."""
    kept = {one.request_id: one for one in samples.read(connection, team, time.time())}
    ids = list(kept)
    calls = []
    for start in range(0, len(ids), _AT_ONCE):
        for id, rows in _rows(connection, team, ids[start : start + _AT_ONCE]):
            calls.append(_call(kept[id], rows))
    return sorted(calls, key=lambda call: call.at)


def _rows(connection: Connection, team: str, ids: Sequence[str]) -> Iterator[tuple[str, list[RowMapping]]]:
    """Read the ledger's rows of each request, in the order of attempts: (request id, rows). Rows of comparisons are
    left out."""
    c = ledger.c
    query = select(ledger).where(c.team == team, c.request_id.in_(ids), c.kind != "shadow", newest)
    found: dict[str, list[RowMapping]] = {}
    for row in connection.execute(query.order_by(c.attempt)).mappings():
        found.setdefault(row["request_id"], []).append(row)
    yield from found.items()


def _call(sample: KeptSample, rows: Sequence[RowMapping]) -> LoggedCall:
    """Convert a sample to a logged call. Its cost is the sum of the costs of all attempts of the request."""
    served = next((row for row in reversed(rows) if row["outcome"] == "ok"), rows[-1])
    costs = [row["cost_pico"] for row in rows if row["cost_pico"] is not None]
    messages = sample.request["messages"]
    return LoggedCall(
        sample.request_id,
        served["at"],
        served["model"],
        Usage(**{name: served[name] for name in TOKENS}),
        sum(costs) if costs else None,
        served["session"],
        messages=messages,
        count=len(messages),
        fields={name: value for name, value in sample.request.items() if name != "messages"},
    )
