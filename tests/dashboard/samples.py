"""Ledger rows as the writer leaves them, and a dashboard to query them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from sqlalchemy import insert

from gateway.domain.policy import Policy
from gateway.ledger.rows import Row
from gateway.policy.load import Policies, PolicySet
from gateway.settings.gateway import Ceilings
from gateway.state.sql.database import Database
from gateway.state.sql.tables import hit_checks, ledger

NOW = 1_800_014_400.0  # 2027-01-15 12:00 UTC
DAY = 86400.0
USD = 10**12
_numbers = count()


def row(**facts: Any) -> dict[str, Any]:
    """A whole answer of backend `large` to team `search` an hour ago, for 1 USD, unless `facts` say otherwise."""
    request = facts.get("request_id") or f"req_{next(_numbers):06d}"
    attempt = facts.get("attempt", 1)
    usual = {
        "request_id": request,
        "attempt": attempt,
        "at": NOW - 3600.0,
        "organisation": "acme",
        "team": "search",
        "key_id": "key_shop",
        "tags": "{}",
        "dialect": "openai_chat",
        "cache": "miss" if attempt else "exact",
        "model_asked": "auto",
        "backend": "large" if attempt else "",
        "model": "big" if attempt else "",
        "tier": "large" if attempt else "",
        "outcome": "ok",
        "input_tokens": 10,
        "output_tokens": 20,
        "cost_pico": USD if attempt else 0,
        "duration_ms": 100.0 if attempt else None,
    }
    return Row(**{"id": f"{request}-{attempt}", **usual, **facts})._asdict()


async def checked(database: Database, team: str, **facts: Any) -> None:
    """Hits by meaning of `team` an hour ago, and what checks found."""
    usual = dict.fromkeys((column.name for column in hit_checks.c), 0) | {"team": team, "at": int(NOW) - 3600}
    await database.run(lambda connection: connection.execute(insert(hit_checks), usual | facts))


async def put(database: Database, *rows: dict[str, Any]) -> None:
    await database.run(lambda connection: connection.execute(insert(ledger), list(rows)))


def policies(found: Mapping[str, dict[str, Any]] | None = None) -> Policies:
    """Policies as if files had said so."""
    made = Policies([], Ceilings())
    said = {team: Policy(team=team, **facts) for team, facts in (found or {}).items()}
    made.current = PolicySet(said, dict.fromkeys(said, ""))
    return made


async def traffic(database: Database) -> None:
    """A bit of everything, in two teams, over two days; in team `search`, 8.75 USD."""
    retried, escalated = "req_retried", "req_escalated"
    small = {"backend": "small", "model": "little", "tier": "small"}
    await put(
        database,
        row(cost_pico=5 * USD, at=NOW - 2 * DAY, tags='{"app":"shop"}'),
        row(cost_pico=USD // 4, **small, key_id="key_help"),
        row(request_id=retried, outcome="failed", status=503, input_tokens=0, output_tokens=0, cost_pico=0),
        row(request_id=retried, attempt=2, backend="gpt", model="gpt", tier="hosted", cost_pico=2 * USD),
        row(request_id=escalated, outcome="escalated", **small, cost_pico=USD // 2),
        row(request_id=escalated, attempt=2, escalated=True),
        row(outcome="interrupted", estimated=True, backend="mystery", model="m", tier="hosted", cost_pico=None),
        row(attempt=0, saved_pico=3 * USD),
        row(attempt=0, cache="semantic", saved_pico=None),
        row(backend="pretend", model="pretend-large", simulated=True, cost_pico=None, duration_ms=9e6),
        row(team="chat", cost_pico=7 * USD, key_id="key_chat"),
        row(team="chat", attempt=0, saved_pico=USD),
    )
