"""Stores alerts and their deliveries in SQL. An alert is stored once, with one delivery for each receiver. Only one
process at a time attempts a delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, select, update

from gateway.alerts.alert import Alert, addressed, targets
from gateway.domain.notify import Notify, Severity
from gateway.domain.policy import AlertsPolicy
from gateway.ledger.store.insert_ignore import insert_once
from gateway.state.sql.tables import alerts

BATCH = 20
LONGEST_WAIT_S = 600.0
GIVE_UP_S = 3 * 86400.0
"""Seconds after which a delivery is given up (dead) if the receiver has not accepted it."""

_FIELDS = ("id", "team", "created_at", "payload", "target", "delivered_at", "kind", "severity", "escalate_at")
_REST: dict[str, str | int | None] = {"tries": 0, "next_try_at": 0, "last_error": ""}


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """A stored row. If `target` is empty, the row is an alert. Otherwise the row is the delivery of an alert to the
    receiver `target`."""

    id: str
    team: str
    created_at: float
    payload: dict[str, Any]
    target: str
    delivered_at: float | None
    tries: int
    last_error: str
    kind: str
    severity: str
    acknowledged_at: float | None
    acknowledged_by: str
    dead_at: float | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery that this process must attempt now."""

    id: str
    target: str
    payload: bytes
    tries: int
    created_at: float


def write(
    connection: Connection, alert: Alert, team: str, receivers: Sequence[Notify], policy: AlertsPolicy, now: float
) -> bool:
    """Insert the alert, with one delivery for each receiver. Returns False if another process has already stored this
    alert."""
    payload = orjson.dumps({"id": alert.id, **alert.payload}).decode()
    escalates = alert.severity == "critical" and policy.escalate_to
    escalate_at = now + policy.escalate_after if escalates else None
    facts = (alert.kind, alert.severity)
    row = (alert.id, team, now, payload, "", now, *facts, escalate_at)
    if insert_once(connection, alerts, _FIELDS, [row], _REST) == 0:
        return False
    deliveries = [
        (alert.addressed(target), team, now, payload, target, None, *facts, None)
        for target in targets(receivers, alert.severity)
    ]
    insert_once(connection, alerts, _FIELDS, deliveries, _REST)
    return True


def claim(connection: Connection, now: float, busy_s: float) -> list[Delivery]:
    """Claim the deliveries that are due, and return them. The caller must attempt them now. If no result is stored,
    other processes get them only after `busy_s` seconds plus the pause that `wait_s` returns."""
    table = alerts.c
    waiting = connection.execute(
        select(table.id, table.target, table.payload, table.tries, table.created_at, table.next_try_at)
        .where(table.delivered_at.is_(None), table.dead_at.is_(None), table.next_try_at <= now)
        .order_by(table.next_try_at)
        .limit(BATCH)
    ).all()
    claimed = []
    for id, target, payload, tries, created_at, next_try_at in waiting:
        mine = connection.execute(
            update(alerts)
            .where(table.id == id, table.delivered_at.is_(None), table.next_try_at == next_try_at)
            .values(tries=tries + 1, next_try_at=now + busy_s + wait_s(tries + 1))
        )
        if mine.rowcount == 1:
            claimed.append(Delivery(id, target, payload.encode(), tries + 1, created_at))
    return claimed


def wait_s(tries: int) -> float:
    """The seconds from a failed attempt to the next one: 2 at first, doubled after each further attempt, at most 600.
    `tries`: number of attempts so far."""
    return min(2.0 ** min(tries, 20), LONGEST_WAIT_S)


def delivered(connection: Connection, delivery: Delivery, now: float) -> None:
    connection.execute(update(alerts).where(alerts.c.id == delivery.id).values(delivered_at=now, last_error=""))


def refused(connection: Connection, delivery: Delivery, now: float, why: str) -> bool:
    """Schedule another attempt, or give the delivery up if it is older than `GIVE_UP_S` seconds. Returns whether it was
    given up. `why`: the receiver's reply."""
    dead = now - delivery.created_at >= GIVE_UP_S
    values = {"last_error": why[:300], "next_try_at": now + wait_s(delivery.tries), "dead_at": now if dead else None}
    connection.execute(
        update(alerts).where(alerts.c.id == delivery.id, alerts.c.delivered_at.is_(None)).values(**values)
    )
    return dead


def dead(connection: Connection, team: str | None, limit: int) -> list[DeliveryResult]:
    """The deliveries that were given up, newest alert first. `team`: only those of this team; None: those of all
    teams."""
    return _rows(connection, limit, alerts.c.dead_at.is_not(None), *_of(team))


def revive(connection: Connection, team: str | None, now: float) -> int:
    """Queue the deliveries that were given up, as if they were new. Returns their number. `team`: only those of this
    team; None: those of all teams."""
    fresh = {"dead_at": None, "next_try_at": 0.0, "tries": 0, "created_at": now}
    return connection.execute(update(alerts).where(alerts.c.dead_at.is_not(None), *_of(team)).values(**fresh)).rowcount


def acknowledge(connection: Connection, id: str, by: str, now: float) -> str | None:
    """Store that the alert `id` was acknowledged, so that it is not escalated. Returns the alert's team, or None if no
    alert has this id."""
    c = alerts.c
    connection.execute(
        update(alerts)
        .where(c.id == id, c.target == "", c.acknowledged_at.is_(None))
        .values(acknowledged_at=now, acknowledged_by=by[:64], escalate_at=None)
    )
    return connection.scalar(select(c.team).where(c.id == id, c.target == ""))


def escalate(connection: Connection, policy_of: Callable[[str], AlertsPolicy | None], now: float) -> list[str]:
    """Find the alerts that were not acknowledged in time, and queue a delivery of each to the escalation receivers.
    Returns their ids."""
    c = alerts.c
    late = connection.execute(
        select(c.id, c.team, c.created_at, c.payload, c.kind, c.severity, c.escalate_at)
        .where(c.escalate_at <= now, c.acknowledged_at.is_(None))
        .limit(BATCH)
    ).all()
    done = []
    for row in late:
        mine = connection.execute(
            update(alerts).where(c.id == row.id, c.escalate_at == row.escalate_at).values(escalate_at=None)
        )
        policy = policy_of(row.team)
        if mine.rowcount == 1 and policy is not None:
            insert_once(connection, alerts, _FIELDS, _escalated(row, policy, now), _REST)
            done.append(row.id)
    return done


def _escalated(row: Any, policy: AlertsPolicy, now: float) -> list[tuple[Any, ...]]:
    payload = orjson.loads(row.payload)
    minutes = (now - row.created_at) / 60
    payload |= {"escalated": True, "text": f"Not acknowledged for {minutes:.0f} minutes: {payload['text']}"}
    body, severity = orjson.dumps(payload).decode(), _severity(row.severity)
    return [
        (addressed(row.id, f"escalated {target}"), row.team, now, body, target, None, row.kind, row.severity, None)
        for target in targets(policy.escalate_to, severity)
    ]


def _severity(text: str) -> Severity:
    return "critical" if text == "critical" else "warning" if text == "warning" else "info"


def latest(connection: Connection, team: str | None, limit: int) -> list[DeliveryResult]:
    """Read the alerts and deliveries, newest first."""
    return _rows(connection, limit, *_of(team))


def _of(team: str | None) -> list[Any]:
    return [] if team is None else [alerts.c.team == team]


def _rows(connection: Connection, limit: int, *which: Any) -> list[DeliveryResult]:
    columns = [alerts.c[name] for name in DeliveryResult.__slots__]
    query = select(*columns).where(*which).order_by(alerts.c.created_at.desc(), alerts.c.id).limit(limit)
    return [
        DeliveryResult(**{**row._mapping, "payload": orjson.loads(row.payload)})
        for row in connection.execute(query).all()
    ]
