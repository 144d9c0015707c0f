"""Computes how much routing, cache and trimming save or lose, compared with one model for all requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select, union_all

from gateway.domain.backend import RANK, Backend
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.policy import ModelRule, Policy
from gateway.domain.protocols import PriceList
from gateway.domain.record import FOR_SESSIONS
from gateway.ledger.reports.formats import dollars
from gateway.ledger.store.entries import IDLE, of, within
from gateway.ledger.store.sums import pico_sum, whole

METHOD = (
    "Baseline: every answered request on the team's reference (its policy's `auto` rule, else the dearest backend), at "
    "today's price, with as many tokens of answer and with the input before trimming.",
    "The reference's prompt cache is taken to be warm: within a session everything that an earlier request sent or got "
    "is read from it, and writing to it costs nothing. Without a session, what was read from a cache in fact.",
    "Cost: all that those teams spent, so the own overhead is in it: failed, escalated, hedged and shadow attempts "
    "(background checks), and calls that keep prompts in caches or write notes about old turns. Grading and embedding "
    "run inside the gateway and cost no tokens.",
    "Tokens are counted as the model that served did. On both sides, at what they cost: embeddings and what is passed "
    "through. On neither side: what has no known price. Rolled-up sums know no sessions.",
)
OVERHEAD = ("failed", "escalated", "hedge", "shadow", *FOR_SESSIONS)
_ELSEWHERE = ("openai_embeddings", "openai_other")
_SERVED = ("ok", "interrupted")


@dataclass(frozen=True, slots=True)
class Statement:
    """The savings of one team. `saved_pico`: the cost if one reference backend had served all requests, minus the
    actual cost. It may be negative; None: no reference has a price."""

    team: str
    reference: str
    requests: int
    baseline_pico: int | None
    cost_pico: int
    overhead_pico: Mapping[str, int] = field(default_factory=dict)
    unpriced: int = 0

    @property
    def saved_pico(self) -> int | None:
        return None if self.baseline_pico is None else self.baseline_pico - self.cost_pico


def reference_of(policy: Policy, backends: Sequence[Backend], prices: PriceList) -> Backend | None:
    """The reference backend. Savings are computed as if this backend had served all requests. None if no backend has a
    price above 0."""
    rule = policy.rule("auto")
    named = rule.reference if isinstance(rule, ModelRule) else rule
    wanted = rule.candidates if isinstance(rule, ModelRule) and rule.candidates else ()
    priced = [(backend, price) for backend in backends if (price := prices.price(backend)) and not price.free]
    for names in ((named,) if named else (), wanted):
        found = [(backend, price) for backend, price in priced if names and _is(backend, names)]
        priced = found or priced
    return max(priced, key=lambda one: (one[1].output, RANK[one[0].tier]), default=(None, None))[0]


def priced_reference(policy: Policy, backends: Sequence[Backend], prices: PriceList) -> tuple[Backend, Price] | None:
    """The reference backend with its price; None if no backend has a price above 0. Savings are computed as if this
    backend had served all requests."""
    reference = reference_of(policy, backends, prices)
    price = None if reference is None else prices.price(reference)
    return None if reference is None or price is None else (reference, price)


def _is(backend: Backend, names: Sequence[str]) -> bool:
    return any(name in (backend.name, backend.tier, backend.model) for name in names)


def statements(
    connection: Connection,
    references: Mapping[str, tuple[Backend, Price] | None],
    *,
    since: float | None = None,
    until: float | None = None,
) -> list[Statement]:
    """Compute the savings of each team with requests in `[since, until)` (Unix seconds). `references`: team →
    (reference, its price)."""
    found = []
    for team, reference in sorted(references.items()):
        statement = _statement(connection, team, reference, since, until)
        if statement.requests:
            found.append(statement)
    return found


def _statement(
    connection: Connection, team: str, reference: tuple[Backend, Price] | None, since: float | None, until: float | None
) -> Statement:
    table = of(connection)
    c = table.c
    spent = and_(c.simulated.is_(False), c.kind != IDLE, *within(since, until, team, table))
    chat, elsewhere = c.dialect.not_in(_ELSEWHERE), c.dialect.in_(_ELSEWHERE)
    priced = and_(spent, chat, or_(c.cost_pico.is_not(None), c.attempt == 0))
    wanted = [elsewhere, *(and_(chat, _is_overhead(c, which)) for which in OVERHEAD)]
    costs = [
        column for one in (c.cost_pico, *(case((which, c.cost_pico)) for which in wanted)) for column in pico_sum(one)
    ]
    unpriced = func.sum(case((and_(chat, c.cost_pico.is_(None), c.outcome != "failed"), c.attempts), else_=0))
    values = connection.execute(select(unpriced, *costs).where(spent)).one()
    cost, unrouted, *overhead = [whole(*values[at : at + 2]) for at in range(1, len(values), 2)]
    requests, baseline = _baseline(connection, c, and_(priced, _is_served(c)), reference)
    name = "" if reference is None else reference[0].name
    return Statement(
        team,
        name,
        requests,
        None if baseline is None else baseline + unrouted,
        cost,
        dict(zip(OVERHEAD, overhead, strict=True)),
        int(values[0] or 0),
    )


def _is_served(c: Any) -> ColumnElement[bool]:
    return and_(c.outcome.in_(_SERVED), c.kind == "")


def _is_overhead(c: Any, which: str) -> ColumnElement[bool]:
    return c.kind == which if which in ("hedge", "shadow", *FOR_SESSIONS) else and_(c.kind == "", c.outcome == which)


def _baseline(
    connection: Connection, c: Any, which: ColumnElement[bool], reference: tuple[Backend, Price] | None
) -> tuple[int, int | None]:
    """The number of requests, and the pico-dollars that these requests would have cost at the reference backend."""
    threshold = reference[1].beyond[0] if reference is not None and reference[1].beyond is not None else None
    served = _served(c, which)
    s = served.c
    warm = case((s.warm > s.sent, s.sent), else_=s.warm)
    long = s.sent > threshold if threshold is not None else s.sent < 0
    requests = func.sum(case((s.alike > 0, s.alike), else_=1))
    found = connection.execute(
        select(
            long, requests, func.sum(s.sent - warm), func.sum(warm), func.sum(s.output), func.sum(s.reasoning)
        ).group_by(long)
    ).all()
    baseline = None if reference is None else 0
    for is_long, _, fresh, cached, output, reasoning in found:
        if reference is not None and baseline is not None:
            price = reference[1].beyond[1] if is_long and reference[1].beyond is not None else reference[1]
            tokens = Usage(int(fresh), int(cached), output_tokens=int(output), reasoning_tokens=int(reasoning))
            baseline += _flat(price).cost(tokens)
    return sum(int(row[1]) for row in found), baseline


def _served(c: Any, which: ColumnElement[bool]) -> Any:
    """A subquery with one row for each request that was answered. Columns: input tokens before trimming; input tokens
    that the reference backend would have read from its cache; output tokens."""
    kept = c.cached_tokens
    sent = (
        c.input_tokens + c.cached_tokens + c.cache_write_5m_tokens + c.cache_write_1h_tokens
        + c.audio_input_tokens + c.image_input_tokens + c.trimmed_tokens
    )  # fmt: skip
    output = c.output_tokens + c.audio_tokens + c.image_tokens
    earlier = func.lag(sent + output + c.reasoning_tokens).over(
        partition_by=(c.key_id, c.session), order_by=(c.at, c.request_id)
    )
    seen = func.coalesce(earlier, 0)
    rest = (output.label("output"), c.reasoning_tokens.label("reasoning"), c.alike)
    # Rows without a session need no window function, which would sort them.
    alone = select(sent.label("sent"), kept.label("warm"), *rest).where(which, c.session == "")
    warm = case((seen > kept, seen), else_=kept).label("warm")
    return union_all(alone, select(sent.label("sent"), warm, *rest).where(which, c.session != "")).subquery()


def _flat(price: Price) -> Price:
    """`price` without its special price for long calls. That price depends on the length of a single call, and this
    function is for sums over many calls."""
    return Price(price.input, price.output, price.cached_input, reasoning=price.reasoning)


def as_object(found: Sequence[Statement]) -> dict[str, Any]:
    """The statements as JSON values. Money is exact decimal text in USD; `saved_usd` is negative if routing cost
    more."""
    known = [one for one in found if one.baseline_pico is not None]
    total = {
        "baseline_usd": dollars(sum(one.baseline_pico or 0 for one in known)),
        "cost_usd": dollars(sum(one.cost_pico for one in known)),
        "saved_usd": dollars(sum(one.saved_pico or 0 for one in known)),
    }
    return {"currency": "USD", "teams": [_object(one) for one in found], "total": total, "method": METHOD}


def _object(one: Statement) -> dict[str, Any]:
    return {
        "team": one.team,
        "reference": one.reference or None,
        "requests": one.requests,
        "baseline_usd": None if one.baseline_pico is None else dollars(one.baseline_pico),
        "cost_usd": dollars(one.cost_pico),
        "overhead_usd": {name: dollars(pico) for name, pico in one.overhead_pico.items()},
        "saved_usd": None if one.saved_pico is None else dollars(one.saved_pico),
        "unpriced": one.unpriced,
    }
