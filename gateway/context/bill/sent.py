"""Bills a file of requests. `context replay` writes such a file: each line is one JSON object
`{"id","turn","body","own_usd"}`.

A request that only keeps a cache entry alive has the field `at` (seconds) instead of `turn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.context.bill.blocks import BlockReader
from gateway.context.bill.prompt_cache import PromptCache
from gateway.context.bill.sessions import Session
from gateway.context.count import family_factor
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import rules_of


@dataclass(frozen=True, slots=True)
class Billed:
    """One request and its cost."""

    id: str
    turn: int | None
    usage: Usage
    cost_pico: int
    own_pico: int
    """Cost of the calls that the gateway itself made for the request, in pico-dollars."""
    reported: dict[str, int] | None
    """The usage that the provider reported when the request was recorded."""

    @property
    def total_pico(self) -> int:
        return self.cost_pico + self.own_pico


def bill_sent(
    rows: Iterable[dict[str, Any]],
    sessions: Mapping[str, Session],
    price_of: Callable[[str], Price | None],
    count: Callable[[str], int],
) -> Iterator[Billed]:
    """Bill the requests in `rows`, in order. Each session has its own prompt cache. `price_of`: returns the price of a
    model. `count`: returns the tokens of a text.

    Raises ValueError for an unknown session or turn, for a model without a price, and for cache marks that Anthropic
    refuses.
    """
    readers: dict[float, BlockReader] = {}
    caches: dict[tuple[str, str], PromptCache] = {}
    for row in rows:
        session = sessions.get(row["id"])
        if session is None:
            raise ValueError(f"{row['id']}: no such session")
        model = row["body"].get("model", session.model)
        price = price_of(model)
        if price is None:
            raise ValueError(f"{model}: no price is known for it")
        cache = caches.setdefault((session.id, model), PromptCache(rules_of(model)))
        factor = family_factor(model)
        reader = readers.setdefault(factor, BlockReader(count, factor))
        yield _billed(row, session, price, cache, reader)


def _billed(row: dict[str, Any], session: Session, price: Price, cache: PromptCache, reader: BlockReader) -> Billed:
    place, turns = row.get("turn"), session.row["turns"]
    if place is None:
        at, output, reported = row["at"], row["body"].get("max_tokens", 1), None
    elif type(place) is int and 0 <= place < len(turns):
        turn = turns[place]
        at, output, reported = turn["t"], turn.get("out", 0), turn.get("usage")
    else:
        raise ValueError(f"{session.id}: has no turn {place}")
    usage = cache.bill(reader.read(row["body"], session.hidden_tokens), at, output)
    return Billed(session.id, place, usage, price.cost(usage), round(row.get("own_usd", 0) * 10**12), reported)
