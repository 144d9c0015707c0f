"""Explains one request from its ledger rows alone: the choice of the backend, and the parts of the cost.

A flight record has more reasons, but is deleted after an hour. The ledger keeps its rows for longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gateway.domain.money.usage import Usage
from gateway.domain.units import cents
from gateway.ledger.prices.applied import price_of
from gateway.ledger.rows import TOKENS, Row
from gateway.ledger.store.entries import CHECK, IDLE

_WORDS = {
    "input_tokens": "tokens of input",
    "cached_tokens": "tokens of input read from the prompt cache",
    "cache_write_5m_tokens": "tokens of input written to the prompt cache",
    "cache_write_1h_tokens": "tokens of input written to the prompt cache",
    "output_tokens": "tokens of output",
    "reasoning_tokens": "tokens of reasoning",
}
_OTHER = "tokens of sound or images"
_HITS = {
    "exact": "Exact hit: the cache had the answer to an identical request, so no backend was called.",
    "semantic": "Semantic hit: the cache had the answer to a question with the same meaning, so no backend was called.",
    "join": "Joined: an identical request was in progress and its answer was shared, so no further backend was called.",
}


def why(rows: Sequence[Row]) -> list[str]:
    """Sentences that explain one request. `rows`: all rows of the request, in the order of attempts. Empty if none of
    them is a call for the client."""
    calls = [row for row in rows if row.attempt > 0 and row.kind not in (CHECK, IDLE)]
    if not calls:
        return [_HITS[row.cache] for row in rows[:1] if row.cache in _HITS]
    served = _served(calls)
    return [*_choice(served), *_detours(calls, served), *_context(calls), *_cost(rows)]


def _served(calls: Sequence[Row]) -> Row:
    return next((row for row in reversed(calls) if row.outcome in ("ok", "interrupted")), calls[-1])


def _choice(row: Row) -> Iterator[str]:
    """A sentence on the choice of the backend: the model that the client named, the policy, or the difficulty of the
    prompt."""
    kind = f" of the kind {row.traffic_class}" if row.traffic_class else ""
    if row.model_asked in (row.backend, row.model):
        yield f"The client named {row.model_asked}."
    elif row.difficulty is None:
        yield f"The policy's rule for {row.model_asked} led to {row.backend}: the prompt{kind} was not graded."
    else:
        hard = f"{row.difficulty:.2f}"
        yield f"The gateway chose {row.backend} for {row.model_asked}: a prompt{kind} with difficulty {hard} of 1."
    if row.decided:
        first = row.decided.split(",")[0]
        yield f"Routing had chosen {first}, but the policy only observes or this request serves to compare."
    if row.above_ceiling:
        yield f"{row.backend} costs more than {row.model_asked}, but no cheaper backend could serve."


def _detours(calls: Sequence[Row], served: Row) -> Iterator[str]:
    """A sentence on each further call of the request: after a weak answer, after a failure, or because the first call
    was slow."""
    for row in calls:
        if row is served:
            continue
        paid = f" It cost ${cents(row.cost_pico)}." if row.cost_pico else ""
        if row.outcome == "escalated":
            yield f"The answer of {row.backend} was too weak, so {served.backend} was asked as well.{paid}"
        elif row.outcome == "failed":
            yield f"{row.backend} failed ({row.error or row.status or 'no answer'}), so another call was made.{paid}"
    if any(row.kind == "hedge" for row in calls):
        yield "The first call was slow, so a second backend was asked at the same time."


def _context(calls: Sequence[Row]) -> Iterator[str]:
    if trimmed := max(row.trimmed_tokens for row in calls):
        yield f"{trimmed:,} tokens of context were left out before the call."


def _cost(rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on the largest part of the cost, and on the cost of background checks."""
    total = sum(row.cost_pico or 0 for row in rows)
    parts = [(cost, name, row) for row in rows for name, cost in _parts(row).items()]
    cost, name, row = max(parts, key=lambda part: part[0], default=(0, "", rows[0]))
    if cost and total:
        count: int = getattr(row, name)
        share, price = min(1.0, cost / total), cents(cost // count * 10**6)
        yield f"{share:.0%} of the cost is for {count:,} {_WORDS.get(name, _OTHER)} at ${price} per million."
    if checks := sum(row.cost_pico or 0 for row in rows if row.kind == CHECK):
        yield f"${cents(checks)} of the cost is for background checks."


def _parts(row: Row) -> dict[str, int]:
    """The cost of each token class in pico-dollars, computed from the row's unit prices. Empty if the row has no unit
    prices."""
    if not row.prices or not row.cost_pico:
        return {}
    try:
        price = price_of(row.prices)
    except (ValueError, TypeError):  # written by another version
        return {}
    counts: dict[str, Any] = {name: getattr(row, name) for name in TOKENS}
    return {name: price.cost(replace(Usage(), **{name: count})) for name, count in counts.items() if count}
