"""All configured backends with their health. Calls backends to get an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict

from gateway.backends.attempts import Attempts, CallContext
from gateway.backends.call import BackendCall
from gateway.backends.cascade.cascade import Cascade, Served
from gateway.backends.cascade.escalation import Escalation
from gateway.backends.load.in_flight import InFlight
from gateway.backends.providers.anthropic import Anthropic
from gateway.backends.providers.azure.provider import Azure
from gateway.backends.providers.base import Kind
from gateway.backends.providers.bedrock.provider import Bedrock
from gateway.backends.providers.gemini import Gemini
from gateway.backends.providers.litellm.provider import ViaLitellm
from gateway.backends.providers.litellm_proxy import LitellmProxy
from gateway.backends.providers.ollama import Ollama
from gateway.backends.providers.openai import Local, OpenAI
from gateway.backends.providers.over_http import OverHttp
from gateway.backends.providers.simulated import Simulated
from gateway.backends.providers.thriftgate import Thriftgate
from gateway.backends.providers.vertex.provider import Vertex
from gateway.backends.resilience.breaker import BreakerSettings, Health
from gateway.backends.resilience.drain import BackendDrains
from gateway.backends.resilience.hedging import Hedges
from gateway.domain.answer import Answer
from gateway.domain.backend import Backend
from gateway.domain.protocols import AttemptJournal, BackendState, Clock, Hold
from gateway.domain.record import Record
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan, Route
from gateway.runtime.off_loop import OffLoop

KINDS: Mapping[str, Callable[[Backend], Kind]] = {
    "openai": OpenAI,
    "azure": Azure,
    "local": Local,
    "anthropic": Anthropic,
    "litellm": ViaLitellm,
    "simulated": Simulated,
    "bedrock": Bedrock,
    "gemini": Gemini,
    "vertex": Vertex,
    "thriftgate": Thriftgate,
    "litellm_proxy": LitellmProxy,
    "ollama": Ollama,
}
MAY_LEAD_BACK: Mapping[str, type[OverHttp]] = {"openai": OpenAI, "local": Local, "anthropic": Anthropic}
"""Kinds of backends whose address may lead back to this gateway. Their own headers do not list the gateways that a
request has passed, so the gateway adds such a header."""


class Fleet:
    """Implements FleetView. Built from the backends of one configuration; opened and closed once."""

    def __init__(
        self,
        backends: Sequence[Backend],
        *,
        clock: Clock = time,
        kinds: Mapping[str, Callable[[Backend], Kind]] = KINDS,
        breaker_settings: BreakerSettings | None = None,
        drains: BackendDrains | None = None,
        off_loop: OffLoop | None = None,
    ) -> None:
        """`drains`: the shared list of backends that get no new requests; None: this process keeps its own list."""
        self.backends = tuple(backends)
        self.drains = drains or BackendDrains()
        self._exchanges = {
            backend.name: BackendCall(
                backend,
                kinds[backend.facts.preset_of or backend.kind](backend),
                Health(
                    backend.name,
                    backend.concurrent,
                    monotonic=clock.monotonic,
                    breaker_settings=breaker_settings,
                    queue=backend.queue,
                    queue_timeout_s=backend.queue_timeout,
                ),
                clock,
                self.drains,
            )
            for backend in self.backends
        }
        self._loads = InFlight(
            {name: (each.backend, each.health) for name, each in self._exchanges.items()}, self.drains
        )
        self._attempts = Attempts(self._exchanges, clock, off_loop)
        self._hedges = Hedges(self._attempts)

    async def open(self) -> None:
        """Open the backends' clients and start the load monitoring."""
        for backend_call in self._exchanges.values():
            await backend_call.kind.open()
        await self._loads.open()

    async def aclose(self) -> None:
        """Stop the load monitoring and close the backends' clients."""
        await self._loads.aclose()
        await asyncio.gather(
            *(backend_call.kind.aclose() for backend_call in self._exchanges.values()), return_exceptions=True
        )

    def get(self, name: str) -> Backend | None:
        """The backend of this name; None if none is configured."""
        backend_call = self._exchanges.get(name)
        return backend_call.backend if backend_call else None

    def state(self, backend: Backend) -> BackendState:
        """The availability, load and speed of a backend, as this worker knows them."""
        return self._loads.state(backend, self._exchanges[backend.name].health)

    async def call(
        self,
        route: Route,
        request: CompletionRequest,
        record: Record,
        *,
        plan_for: Callable[[Backend], Awaitable[ContextPlan]],
        hold: Hold,
        books: AttemptJournal,
        deadline: float,
    ) -> Answer:
        """Call the backends of `route` and return an answer that has begun (stream) or is complete. `deadline`:
        loop time in seconds.

        The attempt of this answer is still open in the journal; all other attempts are closed. Raises the errors of
        `Attempts.first_of`.
        """
        call_context = CallContext(request, record, plan_for, hold, books, deadline)
        if self._loads.looks:
            self._loads.used(route.backends)
        answer: Served
        if route.asking is not None:
            answer = await Cascade(self._attempts, route.asking, route, call_context).answer()
        elif route.escalate_to is not None:
            asking = Escalation(route.backends[0].name, route.escalate_to.name)
            answer = await Cascade(self._attempts, asking, route, call_context).answer()
        elif request.stream and record.tenant.policy.hedging.enabled:
            answer = await self._hedges.answer(route, call_context)
        else:
            answer = await self._attempts.first_of(route.backends, call_context)
        record.trimmed_tokens = answer.attempt.trimmed_tokens
        record.first_byte_ms = round((time.perf_counter() - record.started) * 1e6) / 1000
        return answer

    async def count_tokens(self, backend: Backend, request: CompletionRequest) -> int | None:
        """The number of prompt tokens of an Anthropic request, counted by the backend; None if the backend cannot count
        tokens or is unavailable."""
        backend_call = self._exchanges[backend.name]
        if not isinstance(backend_call.kind, Anthropic) or not backend_call.health.state().available:
            return None
        return await backend_call.kind.count_tokens(request, backend.model)

    def stats(self) -> dict[str, int | float | str]:
        """This worker's totals for each backend: `NAME.in_flight`, `NAME.available`, `NAME.first_byte_ms`, and figures
        of queue and server load."""
        figures: dict[str, int | float | str] = dict(asdict(self._attempts.totals))
        for name, backend_call in self._exchanges.items():
            state = backend_call.health.state()  # without the server's load: reading statistics must not cause a scrape
            figures[f"{name}.in_flight"] = state.in_flight
            figures[f"{name}.available"] = int(state.available and not self.drains.reason(name))
            if state.first_byte_ms is not None:
                figures[f"{name}.first_byte_ms"] = round(state.first_byte_ms, 3)
            figures.update((f"{name}.{figure}", value) for figure, value in backend_call.health.limiter.stats().items())
        return figures | self._loads.stats()
