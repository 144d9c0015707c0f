"""`thriftgate context replay`: writes the requests that the gateway would send for recorded sessions."""

from __future__ import annotations

import asyncio
from collections import Counter as Counted
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import orjson

from gateway.cli.options import Context, common
from gateway.cli.quality.context_bill import prices_by_model, provider_backend, summary
from gateway.context.bill.blocks import BlockReader
from gateway.context.bill.prompt_cache import PromptCache
from gateway.context.bill.sent import Billed
from gateway.context.bill.sessions import SentRequest, Session, read_sessions
from gateway.context.count import Counter, family_factor
from gateway.context.measure import estimated
from gateway.context.plan import Contexts
from gateway.context.strategies import keep_alive
from gateway.context.strategies.keep_alive import IDLE_S, RETURNS_AGENT, RETURNS_ALONE, Cached, share_of_returns
from gateway.dialects.clients import DIALECTS
from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.prompt_cache import SHORT_S, rules_of
from gateway.domain.record import Attempt, Record
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.domain.routing.route import ContextPlan, Prefix, Route
from gateway.domain.tenant import Key, Tenant
from gateway.errors import GatewayError
from gateway.routing.affinity.sessions import prefix_of


class Sent(NamedTuple):
    """A request that the gateway would send, with its cost."""

    billed: Billed
    body: bytes
    at: float | None = None
    """Time in seconds of a request that only keeps a prompt in the cache; None for a client's request."""


_FILE = click.Path(path_type=Path)
_APART_S = 1e7
"""Seconds between the beginnings of two sessions. They are so far apart that no session uses another one's cache
entries."""


@dataclass(slots=True)
class _Paused:
    """The last request of a session. During the pause after it, the request may be sent again to keep the prompt in the
    cache."""

    request: CompletionRequest
    plan: ContextPlan
    cached: Cached | None = None


class _Pauses:
    """Implements `KeepAlive` for recorded sessions. It decides as a worker would, without knowing how the session
    continues."""

    def __init__(self) -> None:
        self._last: _Paused | None = None
        self._seen: Counted[bool] = Counted()
        self._returned: Counted[bool] = Counted()

    def asked(self, request: CompletionRequest, tenant: Tenant, prefix: Prefix, plan: ContextPlan) -> None:
        self._last = _Paused(request, plan) if keep_alive.may_keep(request, tenant, plan) else None

    def ended(self, record: Record, attempt: Attempt | None, cached: Cached) -> None:
        if self._last is not None:
            self._last.cached = cached

    def begin(self) -> None:
        """Begin a new session."""
        self._last = None

    def idle(self, price: Price) -> tuple[CompletionRequest, ContextPlan] | None:
        """Decide about a call in the pause after the session's last request. Returns the request to send and its plan;
        None if the call does not pay."""
        last = self._last
        if last is None or last.cached is None or not last.cached.tokens:
            return None
        agent = "tools" in last.request.needs
        prior = RETURNS_AGENT if agent else RETURNS_ALONE
        share = share_of_returns(prior, self._seen[agent], self._returned[agent])
        self._seen[agent] += 1
        cost, gain = keep_alive.cost_and_gain(price, last.cached, share)
        return (keep_alive.smallest(last.request), keep_alive.again(last.plan)) if gain > cost else None

    def kept(self) -> None:
        """Note that the call in the pause read the prompt from the cache."""
        if self._last is not None and self._last.cached is not None:
            self._last.cached.renew()

    def continued(self) -> None:
        """Note that the session continued within five minutes after it became idle."""
        if self._last is not None:
            self._returned["tools" in self._last.request.needs] += 1


class Replay:
    """Simulates one team's gateway with a simulated clock. Computes the cost of each request from a simulation of the
    provider's cache."""

    def __init__(self, policy: ContextPolicy, price_of: Callable[[str], Price | None]) -> None:
        self._now, self._begins = 0.0, 0.0
        self._tenant = Tenant(Key("replay", "replay"), Policy(team="replay", context=policy))
        self._counter, self._price_of = Counter(), price_of
        self._pauses = _Pauses()
        self._contexts = Contexts(self._counter, monotonic=lambda: self._now, keep_alive=self._pauses)
        self._readers: dict[float, BlockReader] = {}

    def requests(self, session: Session) -> Iterator[Sent]:
        """Yield each request that the gateway would send for a session, with its cost. Raises GatewayError,
        ValueError."""
        self._begins += _APART_S
        self._pauses.begin()
        price = self._price_of(session.model)
        if price is None:
            raise ValueError(f"{session.model}: no price is known for it")
        factor = family_factor(session.model)
        reader = self._readers.setdefault(factor, BlockReader(self._counter.count, factor))
        cache = PromptCache(rules_of(session.model))
        # The backend has no context window, because the provider answered the recorded requests.
        backend = provider_backend(session.model)
        last: float | None = None
        for sent in session.requests():
            if last is not None and sent.at - last > IDLE_S:
                yield from self._keep(session, last + IDLE_S, backend, price, cache, reader)
                if sent.at - last <= IDLE_S + SHORT_S:
                    self._pauses.continued()
            last = sent.at
            self._now = self._begins + sent.at
            record, body = self._send(session, sent, backend)
            blocks = reader.read(orjson.loads(body), session.hidden_tokens)
            usage = record.attempts[0].usage = cache.bill(blocks, sent.at, sent.output_tokens)
            record.attempts[0].outcome = "ok"
            self._contexts.learn(record)
            yield Sent(Billed(session.id, sent.turn, usage, price.cost(usage), 0, sent.reported), body)
        if last is not None:
            yield from self._keep(session, last + IDLE_S, backend, price, cache, reader)

    def _keep(
        self, session: Session, at: float, backend: Backend, price: Price, cache: PromptCache, reader: BlockReader
    ) -> Iterator[Sent]:
        """Yield the request that keeps the session's prompt in the cache, if this pays."""
        self._now = self._begins + at
        if (found := self._pauses.idle(price)) is None:
            return
        body = _body(*found, backend)
        usage = cache.bill(reader.read(orjson.loads(body), session.hidden_tokens), at, 1)
        self._pauses.kept()
        yield Sent(Billed(session.id, None, usage, price.cost(usage), 0, None), body, at)

    def _send(self, session: Session, sent: SentRequest, backend: Backend) -> tuple[Record, bytes]:
        dialect: DialectName = "anthropic_messages" if session.api == "anthropic" else "openai_chat"
        request_id, controls = f"{session.id}-{sent.turn}", Controls(session=session.id)
        request = DIALECTS[dialect].parse(orjson.dumps(sent.body), request_id, controls, {})
        request.estimated_tokens = estimated(request) + session.hidden_tokens
        if session.hidden_tokens:  # the hidden tokens are a system prompt and tools
            request.needs |= {"tools"}
        record = Record(request_id, self._tenant, request.model, dialect, stream=False)
        prefix = prefix_of(request, self._tenant.key.lineage, session.id)
        record.route = Route((backend,), "replay", prefix=prefix)
        plan = asyncio.run(self._contexts.plan_for(request, self._tenant, backend, prefix))
        attempt = record.attempt(backend)
        attempt.input_tokens, attempt.trimmed_tokens = plan.expected_tokens, plan.trimmed_tokens
        attempt.counted_tokens, attempt.marks, attempt.frozen = plan.counted_tokens, plan.marks, plan.frozen
        return record, _body(request, plan, backend)


def _body(request: CompletionRequest, plan: ContextPlan, backend: Backend) -> bytes:
    wire = translators(request.dialect, backend.spoken)[0]
    return wire.body(plan.instead or request, request.model, plan if plan.changes_body else None)


@click.command()
@common
@click.argument("sessions", type=_FILE)
@click.option("--prices", type=_FILE, help="Prices by model, as JSON; default: the packaged ones.")
@click.option("--out", type=_FILE, required=True, help="Where to write the requests, one JSON object a line.")
@click.option("--keep-alive", "keeps", is_flag=True, help="As with `context.keep_alive: true` in the policy.")
@click.option("--unused-tools", "leaves", is_flag=True, help="As with `context.unused_tools: leave_out`.")
def replay(options: Context, sessions: Path, prices: Path | None, out: Path, *, keeps: bool, leaves: bool) -> None:
    """Write the gateway's requests for recorded sessions.

    No provider is called. The cost of the written requests can be computed with `thriftgate context bill` or by another
    program.

    SESSIONS: recorded sessions, one JSON object per line; may be compressed (.xz).

    \b
    thriftgate context replay sessions.jsonl.xz --prices prices.json --out sent.jsonl
    """
    try:
        known = {session.id: session for session in read_sessions(sessions)}
        policy = ContextPolicy(holdout=0.0, keep_alive=keeps, unused_tools="leave_out" if leaves else "keep")
        billed = _replay(known, prices_by_model(prices), out, policy)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: cannot be read or written: {error.strerror}") from error
    except (ValueError, KeyError) as error:
        raise click.ClickException(f"{sessions}: {error}") from error
    except GatewayError as error:
        raise click.ClickException(error.message) from error
    values = summary(billed, known)
    options.print(values, f"{values['requests']} requests, {float(values['usd']):.4f} USD: {out}")


def _replay(
    sessions: dict[str, Session], price_of: Callable[[str], Price | None], out: Path, policy: ContextPolicy
) -> list[Billed]:
    run, found = Replay(policy, price_of), []
    with out.open("wb") as lines:
        for session in sessions.values():
            for billed, body, at in run.requests(session):
                head: dict[str, Any] = {"id": billed.id, **({"turn": billed.turn} if at is None else {"at": at})}
                lines.write(orjson.dumps({**head, "body": orjson.Fragment(body), "own_usd": 0.0}) + b"\n")
                found.append(billed)
    return found
