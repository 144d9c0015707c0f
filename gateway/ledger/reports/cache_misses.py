"""Finds the requests of sessions for which a provider read less of the prompt from its cache than was possible. The
ledger contains no prompts, so the cause is derived from times, models and token counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, select

from gateway.domain.prompt_cache import LONG_S, rules_of
from gateway.ledger.prices.applied import price_of
from gateway.ledger.rows import Row
from gateway.ledger.store.entries import newest, within
from gateway.state.sql.tables import ledger

Cause = Literal["model switch", "expired", "own cut", "not marked", "beginning changed", "history changed"]

REMEDIES: dict[Cause, str] = {
    "model switch": "Another model or backend served the request before, and its cache is of no use here.",
    "expired": "The provider had deleted the entry, because the session paused for longer than the entry lives.",
    "own cut": "The gateway left out old outputs or trimmed the conversation (context.old_outputs, max_input_tokens).",
    "not marked": "No part of the prompt was marked for the cache (context.prompt_cache, prompt_cache of the backend).",
    "beginning changed": "The client changed its tools, their order, or its system prompt (often a date in it); "
    "`thriftgate context doctor BEFORE.json NOW.json` compares two requests.",
    "history changed": "The client shortened or changed earlier messages, or has several conversations in the session.",
}
"""Cause → explanation for the user."""
_LEAST_TOKENS = 1024
"""Minimum number of tokens that a request must have lost to count as a miss."""
_LEAST_SHARE = 0.1
"""Minimum share of the expected tokens that a request must have lost to count as a miss."""
_SHORTER = 0.8
"""A prompt with less than this share of the previous prompt's tokens belongs to a shortened history."""
_MOST_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Miss:
    """One request that read less from the provider's cache than expected."""

    row: Row
    cause: Cause
    expected_tokens: int
    """Number of tokens of the session's previous prompt, all of which could have been read."""
    lost_tokens: int
    lost_pico: int | None
    """Cost of the lost tokens beyond the price of reading them from the cache. None if a price is unknown."""


def session_rows(connection: Connection, *, since: float, team: str | None, session: str | None) -> list[Row]:
    """The answered calls that belong to a named session, oldest call first."""
    c = ledger.c
    which = [newest, c.attempt > 0, c.kind == "", c.session != "", c.outcome.in_(("ok", "interrupted"))]
    which += within(since, None, team, ledger)
    which += [] if session is None else [c.session == session]
    query = select(*[c[name] for name in Row._fields]).where(*which).order_by(c.at, c.id).limit(_MOST_ROWS)
    return [Row(*values) for values in connection.execute(query)]


def misses(rows: Iterable[Row]) -> Iterator[Miss]:
    """Yield a miss for each call that read less from the provider's cache than expected. `rows`: the calls of one or
    more sessions, oldest call first."""
    last: dict[tuple[str, str], Row] = {}
    last_there: dict[tuple[str, str, str, str], Row] = {}
    for row in rows:
        session = row.key_id, row.session
        here = (*session, row.backend, row.model)
        before, there = last.get(session), last_there.get(here)
        last[session] = last_there[here] = row
        if before is not None and (found := _miss(row, before, there)) is not None:
            yield found


def _miss(row: Row, before: Row, there: Row | None) -> Miss | None:
    """The miss of the call `row`; None if its cached part was as large as expected. `before`: the previous call of the
    session. `there`: the session's previous call of the same backend and model."""
    now, rules = row.usage, rules_of(row.model)
    expected = min(before.usage.all_input, now.all_input)
    lost = expected - now.cached_tokens
    if row.estimated or expected < rules.least_tokens or lost < max(_LEAST_TOKENS, _LEAST_SHARE * expected):
        return None
    return Miss(row, _cause(row, before, there), expected, lost, _lost_pico(row, lost))


def _cause(row: Row, before: Row, there: Row | None) -> Cause:
    now, rules = row.usage, rules_of(row.model)
    if there is None or there is not before:
        return "model switch"
    lives_s = LONG_S if before.cache_write_1h_tokens else rules.ttl_s
    if row.at - before.at > lives_s:
        return "expired"
    if row.trimmed_tokens != before.trimmed_tokens:
        return "own cut"
    if rules.kind == "marks" and not (now.cached_tokens or now.cache_write_5m_tokens or now.cache_write_1h_tokens):
        return "not marked"
    if now.all_input < _SHORTER * before.usage.all_input or now.cached_tokens:
        return "history changed"
    return "beginning changed"


def _lost_pico(row: Row, lost: int) -> int | None:
    try:
        price = price_of(row.prices)
    except (ValueError, TypeError):
        return None
    if price.cached_input is None:
        return None
    paid: int | None = price.input
    if row.cache_write_1h_tokens:
        paid = price.cache_write_1h
    elif row.cache_write_5m_tokens:
        paid = price.cache_write_5m
    return None if paid is None else lost * max(0, paid - price.cached_input)
