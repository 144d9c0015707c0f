"""`thriftgate context replay`: shows which requests the gateway would send for recorded sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
from gateway.dialects.clients import DIALECTS
from gateway.dialects.registry import translators
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.policy import ContextPolicy, Policy
from gateway.domain.prompt_cache import rules_of
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.domain.routing.route import ContextPlan, Route
from gateway.domain.tenant import Key, Tenant
from gateway.errors import GatewayError
from gateway.routing.affinity.sessions import prefix_of

_FILE = click.Path(path_type=Path)
_APART_S = 1e7
"""Seconds between the beginnings of two sessions. They are so far apart that no session uses another one's cache
entries."""


class Replay:
    """One team's gateway with a simulated clock. The biller, which computes the cost of each request, simulates the
    content of a provider's cache."""

    def __init__(self, policy: ContextPolicy, price_of: Callable[[str], Price | None]) -> None:
        self._now, self._begins = 0.0, 0.0
        self._tenant = Tenant(Key("replay", "replay"), Policy(team="replay", context=policy))
        self._counter, self._price_of = Counter(), price_of
        self._contexts = Contexts(self._counter, monotonic=lambda: self._now)
        self._readers: dict[float, BlockReader] = {}

    def requests(self, session: Session) -> Iterator[tuple[Billed, bytes]]:
        """Yield, for each request of a session, its cost and the body that was sent. Raises GatewayError,
        ValueError."""
        self._begins += _APART_S
        price = self._price_of(session.model)
        if price is None:
            raise ValueError(f"{session.model}: no price is known for it")
        factor = family_factor(session.model)
        reader = self._readers.setdefault(factor, BlockReader(self._counter.count, factor))
        cache = PromptCache(rules_of(session.model))
        # The backend has no context window, because the provider answered the recorded requests.
        backend = provider_backend(session.model)
        for sent in session.requests():
            self._now = self._begins + sent.at
            record, body = self._send(session, sent, backend)
            blocks = reader.read(orjson.loads(body), session.hidden_tokens)
            usage = record.attempts[0].usage = cache.bill(blocks, sent.at, sent.output_tokens)
            record.attempts[0].outcome = "ok"
            self._contexts.learn(record)
            yield Billed(session.id, sent.turn, usage, price.cost(usage), 0, sent.reported), body

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
    return wire.body(request, request.model, plan if plan.changes_body else None)


@click.command()
@common
@click.argument("sessions", type=_FILE)
@click.option("--prices", type=_FILE, help="Prices by model, as JSON; default: the packaged ones.")
@click.option("--out", type=_FILE, required=True, help="Where to write the requests, one JSON object a line.")
def replay(options: Context, sessions: Path, prices: Path | None, out: Path) -> None:
    """Write the gateway's requests for recorded sessions.

    No provider is called. The cost of the written requests can be computed with `thriftgate context bill` or by another
    program.

    SESSIONS: recorded sessions, one JSON object per line; may be compressed (.xz).

    \b
    thriftgate context replay sessions.jsonl.xz --prices prices.json --out sent.jsonl
    """
    try:
        known = {session.id: session for session in read_sessions(sessions)}
        billed = _replay(known, prices_by_model(prices), out)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: cannot be read or written: {error.strerror}") from error
    except (ValueError, KeyError) as error:
        raise click.ClickException(f"{sessions}: {error}") from error
    except GatewayError as error:
        raise click.ClickException(error.message) from error
    values = summary(billed, known)
    options.print(values, f"{values['requests']} requests, {float(values['usd']):.4f} USD: {out}")


def _replay(sessions: dict[str, Session], price_of: Callable[[str], Price | None], out: Path) -> list[Billed]:
    run, found = Replay(ContextPolicy(holdout=0.0), price_of), []
    with out.open("wb") as lines:
        for session in sessions.values():
            for billed, body in run.requests(session):
                head: dict[str, Any] = {"id": billed.id, "turn": billed.turn}
                lines.write(orjson.dumps({**head, "body": orjson.Fragment(body), "own_usd": 0.0}) + b"\n")
                found.append(billed)
    return found
