"""A month of two teams' requests as they would stand in the ledger, the same at every run but for the time of day."""

from __future__ import annotations

import random
import time
from typing import Any

import orjson
from sqlalchemy import insert

from gateway.ledger.rows import Row
from gateway.state.sql.database import Database
from gateway.state.sql.tables import alerts, hit_checks, keys, ledger

HOUR, DAY = 3600.0, 86400.0
USD = 10**12
SEARCH, CHAT, NEW = "search", "chat-secret", "newcomer"
FOREIGN = ("chat-secret", "hush", "key_chat", "Chat bot", "13.37", "133,700", "133700")
"""What would give away another team's figures."""
HOSTILE = "<img src=x onerror=alert(1)>"
BACKENDS: dict[str, dict[str, Any]] = {
    "small": {"model": "smollm2-135m", "tier": "small", "input": 20_000, "output": 80_000, "ms": 180},
    "large": {"model": "qwen3-32b", "tier": "large", "input": 300_000, "output": 900_000, "ms": 900},
    "gpt": {"model": "gpt-5-mini-2026-01-15", "tier": "hosted", "input": 2_500_000, "output": 10_000_000, "ms": 2100},
}


def put(database: Database, now: float) -> None:
    """Both teams' rows, names of keys, and alerts."""
    rows = [row for number in range(30) for row in _day(number, now)]
    rows += [_row("r_hush", 1, now - HOUR, "gpt", 100, 100, team=CHAT, key_id="key_chat", cost_pico=1337 * USD // 100)]
    rows += [_row("r_hush2", 1, now - DAY, "gpt", 100, 100, team=CHAT, key_id="key_chat", model_asked="hush")]
    today = max(now - 60, now // DAY * DAY)  # at midnight too somebody has asked, and spent
    rows += [_row("r_today", 1, today, "large", 900, 300, key_id="key_shop", difficulty=0.5)]
    person = {"key_id": "key_shop", "end_user": "eu_someone", "session": "trip-1", "difficulty": 0.5}
    rows += [_row("r_trip", 1, now - 2 * DAY, "gpt", 900, 300, **person)]
    hostile = {
        "model_asked": HOSTILE,
        "error": HOSTILE,
        "outcome": "failed",
        "session": HOSTILE,
        "tags": orjson.dumps({HOSTILE: HOSTILE}).decode(),
    }
    rows += [_row("r_hostile", 1, now - 40 * DAY, "small", 10, 10, **hostile)]
    named = [("key_shop", SEARCH, "Web shop"), ("key_help", SEARCH, HOSTILE), ("key_chat", CHAT, "Chat bot")]
    with database.begin() as connection:
        connection.execute(insert(ledger), rows)
        connection.execute(
            insert(keys),
            [
                {"id": id, "digest": id.encode().ljust(32), "team": team, "name": name, "scopes": "inference"}
                | {"created_at": now - 40 * DAY}
                for id, team, name in named
            ],
        )
        connection.execute(insert(hit_checks), [_checks(SEARCH, now, 4000), _checks(CHAT, now, 133_700)])
        connection.execute(insert(alerts), [*_alert("a1", SEARCH, now - 2 * DAY), *_alert("a2", CHAT, now - DAY)])


def _day(number: int, now: float) -> list[dict[str, Any]]:
    """Rows of the day that ended `number` days ago: fewer at weekends, dearer towards today."""
    chance = random.Random(number)
    end = now - number * DAY
    weekend = time.gmtime(end).tm_wday >= 5
    rows = []
    for place in range(6 if weekend else 24):
        at = end - chance.random() * DAY * 0.999
        id = f"req_{number:02d}{place:02d}{chance.getrandbits(48):012x}"
        rows += _request(id, at, chance)
    return rows


def _request(id: str, at: float, chance: random.Random) -> list[dict[str, Any]]:
    difficulty = round(chance.random() ** 1.5, 3)
    asked = {
        "difficulty": difficulty,
        "key_id": chance.choice(("key_shop", "key_shop", "key_help")),
        "tags": orjson.dumps({"app": chance.choice(("shop", "support", HOSTILE)), "stage": "live"}).decode(),
        "stream": chance.random() < 0.5,
    }
    tokens = chance.randrange(200, 6000), chance.randrange(20, 900)
    kind = chance.random()
    if kind < 0.22:
        saved = chance.choice((None, chance.randrange(USD // 400, USD // 20)))
        cache = chance.choice(("exact", "exact", "semantic", "join"))
        return [_row(id, 0, at, "", *tokens, cache=cache, cost_pico=0, saved_pico=saved, **asked)]
    wanted = "small" if difficulty < 0.3 else "large" if difficulty < 0.7 else "gpt"
    if kind < 0.28:
        weak = _row(id, 1, at, "small", *tokens, outcome="escalated", **asked)
        return [weak, _row(id, 2, at + 0.2, "large", *tokens, escalated=True, **asked)]
    if kind < 0.32:
        broken = {"outcome": "failed", "status": 503, "error": "overloaded", "duration_ms": 40.0}
        return [_row(id, 1, at, wanted, 0, 0, **asked, **broken), _row(id, 2, at + 0.1, "gpt", *tokens, **asked)]
    if kind < 0.34:
        return [_row(id, 1, at, wanted, *tokens, outcome="interrupted", estimated=True, **asked)]
    return [_row(id, 1, at, wanted, *tokens, **asked)]


def _row(id: str, attempt: int, at: float, backend: str, given: int, made: int, **facts: Any) -> dict[str, Any]:
    about = BACKENDS.get(backend, {"model": "", "tier": "", "input": 0, "output": 0, "ms": 0})
    usual = {
        "request_id": id, "attempt": attempt, "at": at, "organisation": "default", "team": SEARCH,
        "key_id": "key_shop", "tags": "{}", "dialect": "openai_chat", "cache": "miss" if attempt else "exact",
        "traffic_class": "en/text/opening",
        "model_asked": "auto", "backend": backend, "model": about["model"], "tier": about["tier"], "outcome": "ok",
        "input_tokens": given, "output_tokens": made,
        "cost_pico": given * about["input"] + made * about["output"],
        "price_source": "list 2026-09" if backend else "",
        "first_byte_ms": about["ms"] / 4 if backend else None,
        "duration_ms": about["ms"] + made * 1.5 if backend else None,
    }  # fmt: skip
    return Row(id=f"{id}-{attempt}", **{**usual, **facts})._asdict()


def _checks(team: str, now: float, lookups: int) -> dict[str, Any]:
    """A tenth of the look-ups were hits; 60 were checked, one in ten hits each, and 2 of them wrong."""
    counts = {"lookups": lookups, "hits": lookups // 10, "checked": 60, "wrong": 2, "undecided": 5, "called_wrong": 1}
    weights = {"weight": 600.0, "weight_squared": 6000.0, "weight_wrong": 20.0}
    return {"team": team, "at": int(now - DAY) // 900 * 900, **counts, **weights}


def _alert(id: str, team: str, at: float) -> list[dict[str, Any]]:
    """An alert and its copy for one receiver, who does not answer."""
    text = f"Team {team} has spent 0.55 USD, 50% or more of its monthly budget of 1 USD."
    payload = {"id": id, "text": text, "threshold": "50%", "window": "month", "kind": "threshold", "severity": "info"}
    payload |= {"spent_usd": "0.55", "limit_usd": "1"}
    facts = {"team": team, "created_at": at, "payload": orjson.dumps(payload).decode(), "next_try_at": 4e9}
    facts |= {"kind": "threshold", "severity": "info", "tries": 0, "last_error": ""}
    letter = {"target": "env:OPS_HOOK", "delivered_at": None, "tries": 4, "last_error": "answered 503"}
    return [{**facts, "id": id, "target": "", "delivered_at": at}, {**facts, **letter, "id": f"{id}/1"}]
