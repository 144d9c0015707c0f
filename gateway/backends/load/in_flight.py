"""The load of each backend, as its server reports it. If the server does not report its load, this worker's calls
in progress are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.backends.load.scrape import Scrape, watched
from gateway.backends.resilience.breaker import Health
from gateway.backends.resilience.drain import BackendDrains
from gateway.domain.backend import Backend
from gateway.domain.protocols import BackendState
from gateway.domain.routing.load import Load
from gateway.runtime.tasks import Tasks

GUESSED_S = 5.0
"""Assumed seconds per answer of a backend that has not yet given a complete answer."""


class InFlight:
    """Adds the load and the drain reason to the state of each backend. Each worker has one instance."""

    def __init__(self, healths: Mapping[str, tuple[Backend, Health]], drains: BackendDrains) -> None:
        self._healths, self.drains = healths, drains
        self._scrapes = {name: Scrape(backend, drains) for name, (backend, _) in healths.items() if watched(backend)}
        self._capacities = {name: _capacity(backend) for name, (backend, _) in healths.items()}
        self.looks = bool(self._scrapes)
        """Whether any server is scraped."""
        self._tasks = Tasks()

    async def open(self) -> None:
        """Start the background tasks. Each server is scraped only while its load is requested."""
        await self.drains.open()
        for name, scrape in self._scrapes.items():
            health = self._healths[name][1]
            self._tasks.spawn(scrape.run(lambda health=health: health.in_flight), f"load of {name}")  # type: ignore[misc]

    async def aclose(self) -> None:
        await self._tasks.aclose()
        await self.drains.aclose()
        for scrape in self._scrapes.values():
            await scrape.aclose()

    def used(self, backends: Iterable[Backend]) -> None:
        """Continue the scrapes of `backends`. Call this for backends to which requests are sent without asking for
        their load."""
        for backend in backends:
            if (scrape := self._scrapes.get(backend.name)) is not None:
                scrape.want()

    def state(self, backend: Backend, health: Health) -> BackendState:
        """The state of `backend` according to `health`, with the drain reason and the load added."""
        state, name = health.state(), backend.name
        if self.drains.any and (drained := self.drains.reason(name)):
            state.available, state.reason = False, state.reason or drained
        scrape = self._scrapes.get(name)
        load = scrape.load(health.in_flight) if scrape is not None else None
        if load is None and (capacity := self._capacities[name]) is not None:
            load = own_view(health, capacity)
        if load is not None:
            state.load = load
            state.wait_s = wait_s(load, health.whole_s)
        return state

    def stats(self) -> dict[str, float]:
        """Figures of each scraped server: `NAME.server_running`, `NAME.server_waiting`,
        `NAME.server_tokens_per_second`, `NAME.server_kv_used`."""
        figures: dict[str, float] = {}
        for name, scrape in self._scrapes.items():
            load = scrape.known(self._healths[name][1].in_flight)
            if load is None:
                continue
            figures[f"{name}.server_running"] = round(load.running, 3)
            figures[f"{name}.server_waiting"] = round(load.waiting, 3)
            if load.tokens_per_second is not None:
                figures[f"{name}.server_tokens_per_second"] = round(load.tokens_per_second, 1)
            if load.kv_used is not None:
                figures[f"{name}.server_kv_used"] = round(load.kv_used, 3)
        return figures


def _capacity(backend: Backend) -> int | None:
    """The number of calls that the backend accepts at a time; None if the operator configured no number."""
    if backend.slots is None and "concurrent" not in backend.model_fields_set:
        return None
    return min(backend.slots or backend.concurrent, backend.concurrent)


def own_view(health: Health, capacity: int) -> Load:
    """The load that this worker's calls cause on a backend. `capacity`: calls that the backend accepts at a time."""
    present = health.in_flight + health.limiter.waiting
    running = min(present, capacity)
    return Load(running, present - running, capacity)


def wait_s(load: Load, whole_s: float | None) -> float:
    """Estimated seconds that one more request would wait for a slot. `whole_s`: measured seconds of a whole answer,
    including this wait; None: not measured yet.

    Formula (Little's law, 1961): (`load.waiting` + 1) · S / capacity. S is the time of an answer without the wait:
    whole_s · running / (running + waiting).
    """
    if not load.full:
        return 0.0
    present = load.running + load.waiting
    served_s = (GUESSED_S if whole_s is None else whole_s) * (load.running / present if present else 1.0)
    return (load.waiting + 1) * served_s / max(load.capacity or load.running, 1.0)
