"""The door to the room: every configured backend, its health, and one call that gets an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict

from gateway.backends.anthropic import Anthropic
from gateway.backends.attempts import Attempts, Errand
from gateway.backends.escalate import escalating
from gateway.backends.exchange import Exchange
from gateway.backends.health import Health, Tripping
from gateway.backends.openai import Local, OpenAI
from gateway.backends.simulated import Simulated
from gateway.backends.upstream import Kind
from gateway.backends.via_litellm import ViaLitellm
from gateway.domain.answer import Answer
from gateway.domain.backend import Backend
from gateway.domain.protocols import BackendState, Books, Clock, Hold
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.route import ContextPlan, Route

KINDS: Mapping[str, Callable[[Backend], Kind]] = {
    "openai": OpenAI,
    "local": Local,
    "anthropic": Anthropic,
    "litellm": ViaLitellm,
    "simulated": Simulated,
}


class Fleet:
    """Implements FleetView. Built from the backends of one configuration; opened and closed once."""

    def __init__(
        self,
        backends: Sequence[Backend],
        *,
        clock: Clock = time,
        kinds: Mapping[str, Callable[[Backend], Kind]] = KINDS,
        tripping: Tripping | None = None,
    ) -> None:
        self.backends = tuple(backends)
        self._exchanges = {
            backend.name: Exchange(
                backend,
                kinds[backend.kind](backend),
                Health(
                    backend.name,
                    backend.concurrent,
                    monotonic=clock.monotonic,
                    tripping=tripping,
                    queue=backend.queue,
                    queue_timeout_s=backend.queue_timeout,
                ),
                clock,
            )
            for backend in self.backends
        }
        self._attempts = Attempts(self._exchanges, clock)

    async def open(self) -> None:
        for exchange in self._exchanges.values():
            await exchange.kind.open()

    async def aclose(self) -> None:
        await asyncio.gather(*(exchange.kind.aclose() for exchange in self._exchanges.values()), return_exceptions=True)

    def get(self, name: str) -> Backend | None:
        exchange = self._exchanges.get(name)
        return exchange.backend if exchange else None

    def state(self, backend: Backend) -> BackendState:
        return self._exchanges[backend.name].health.state()

    async def call(
        self,
        route: Route,
        request: CompletionRequest,
        record: Record,
        *,
        plan_for: Callable[[Backend], Awaitable[ContextPlan]],
        hold: Hold,
        books: Books,
        deadline: float,
    ) -> Answer:
        """An answer with its first bytes in hand (a plain one: all of them), whose attempt is open in the books.

        `deadline` is loop time. Raises what `Attempts.first_of` raises; every attempt that does not serve is closed
        in the books by then, also when this is cancelled.
        """
        errand = Errand(request, record, plan_for, hold, books, deadline)
        if route.escalate_to is None or request.stream:
            answer = await self._attempts.first_of(route.backends, errand)
        else:
            answer = await escalating(self._attempts, route, errand)
        record.trimmed_tokens = answer.attempt.trimmed_tokens
        record.first_byte_ms = round((time.perf_counter() - record.started) * 1000, 3)
        return answer

    async def count_tokens(self, backend: Backend, request: CompletionRequest) -> int | None:
        """Tokens of an Anthropic request's prompt, from a backend that counts them; None where none does, or now."""
        exchange = self._exchanges[backend.name]
        if not isinstance(exchange.kind, Anthropic) or not exchange.health.state().available:
            return None
        return await exchange.kind.count_tokens(request, backend.model)

    def stats(self) -> dict[str, int | float | str]:
        """Totals of this worker; of each backend `NAME.in_flight`, `NAME.available`, `NAME.first_byte_ms`, and those
        of its queue.
        """
        figures: dict[str, int | float | str] = dict(asdict(self._attempts.totals))
        for name, exchange in self._exchanges.items():
            state = exchange.health.state()
            figures[f"{name}.in_flight"] = state.in_flight
            figures[f"{name}.available"] = int(state.available)
            if state.first_byte_ms is not None:
                figures[f"{name}.first_byte_ms"] = round(state.first_byte_ms, 3)
            figures.update((f"{name}.{figure}", value) for figure, value in exchange.health.places.stats().items())
        return figures
