"""The worker pool: replaces workers that die or freeze, and restarts them one by one on request."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial

from gateway.runtime.tasks import Tasks
from gateway.supervisor.figures import Figure, by_cause
from gateway.supervisor.heartbeat import Heartbeat
from gateway.supervisor.process import ChildProcess, Process

log = logging.getLogger(__name__)

LOOK_S = 1.0
SILENT_S = 10.0
"""A worker speaks once a second; one that has been silent for so long is frozen."""
OPEN_S = 60.0
"""Longest that a worker may take until it accepts connections."""
ROLL_S = 60.0
"""Longest that a roll waits for a replacement to answer requests; then the old worker stays."""
GRACE_S = 5.0
"""Seconds after the drain in which a worker closes its parts."""
CAUSES = ("exit", "SIGKILL", "SIGSEGV", "frozen", "slow start", "not started", "rolling")
"""Why a worker is replaced, as far as can be foreseen. Shown from the start, because only growth from 0 is seen."""

Launch = Callable[[int, int], Awaitable[Process]]
"""Number of a worker and its end of the pulse → its process. Raises OSError."""


class Worker:
    """One worker, over all its lives."""

    def __init__(self, number: int, launch: Launch, on_change: Callable[[], None]) -> None:
        self.child = ChildProcess(
            f"worker {number}", partial(self._start, number, launch), on_change=self._changed, last_words=self._error
        )
        self._on_change = on_change
        self._pulse: Heartbeat | None = None
        self._news = asyncio.Event()
        self._reload = False
        self.keeping: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        return self.child.pid is not None and self._pulse is not None and self._pulse.stage == "ready"

    async def _start(self, number: int, launch: Launch) -> Process:
        if self._pulse:
            self._pulse.close()
        self._pulse = Heartbeat(self._changed)
        try:
            return await launch(number, self._pulse.writer)
        finally:
            self._pulse.hand_over()

    def _error(self) -> str:
        if self._pulse is None:
            return ""
        self._pulse.listen()
        return self._pulse.error

    def _changed(self) -> None:
        if self._reload and self._pulse and self._pulse.stage:
            self._reload = False
            self.child.signal(signal.SIGHUP)
        self._news.set()
        self._on_change()

    def look(self) -> None:
        """Kill it when it is frozen; `child.keep` starts it again."""
        self.child.look()
        if self._pulse is None or self.child.pid is None:
            return
        self._pulse.listen()
        silent_s = asyncio.get_running_loop().time() - self._pulse.heard_at
        if silent_s > (SILENT_S if self._pulse.stage else OPEN_S):
            what = "is frozen" if self._pulse.stage else "did not start"
            log.error("%s (pid %d) %s: silent for %.0f s, killed", self.child.name, self.child.pid, what, silent_s)
            self.child.put_down("frozen" if self._pulse.stage else "slow start")

    def reload(self) -> None:
        """As soon as it can: until it accepts connections, the signal might end it."""
        if self._pulse and self._pulse.stage:
            self.child.signal(signal.SIGHUP)
        else:
            self._reload = True

    async def settle(self, timeout_s: float) -> bool:
        """Whether it becomes ready in time, and in its first life."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.ready and not self.child.short_lives:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return self.ready

    async def leave(self, timeout_s: float) -> None:
        if self.keeping:
            self.keeping.cancel()
        await self.child.stop(timeout_s)
        if self._pulse:
            self._pulse.close()


class WorkerPool:
    """Open with `start`, close with `end`; `watch` runs in between."""

    def __init__(self, count: int, launch: Launch, on_change: Callable[[], None]) -> None:
        self._count, self._launch, self._on_change = count, launch, on_change
        self._hands: dict[int, Worker] = {}
        self._passing: set[Worker] = set()
        """Replacements that are not ready yet, and the replaced that finish their streams."""
        self._tasks = Tasks()
        self._hurry, self._answering = asyncio.Event(), asyncio.Event()
        self._refused = ""
        self._rolling = False
        self._starts = 0
        self._ends = Counter(dict.fromkeys(CAUSES, 0))
        """Of hands that have left."""

    @property
    def pids(self) -> list[int]:
        return [worker.child.pid for worker in (*self._hands.values(), *self._passing) if worker.child.pid]

    @property
    def troubles(self) -> list[str]:
        """For everybody's eyes: nothing of an error's text."""
        found = [worker.child.trouble for worker in (*self._hands.values(), *self._passing)]
        return [trouble for trouble in (*found, self._refused) if trouble]

    def figures(self) -> Iterator[Figure]:
        workers = (*self._hands.values(), *self._passing)
        yield "workers_wanted", (), self._count
        yield "workers_ready", (), sum(worker.ready for worker in self._hands.values())
        yield "worker_starts", (), self._starts + sum(worker.child.starts for worker in workers)
        ends = self._ends.copy()
        for worker in workers:
            ends.update(worker.child.ends)
        yield from by_cause("worker_ends", ends)

    def processes(self) -> Iterator[tuple[str, int | None]]:
        for worker in self._hands.values():
            yield worker.child.name, worker.child.pid

    @property
    def at_rest(self) -> bool:
        """All workers are ready, and none is to be replaced."""
        return bool(self._hands) and not self._rolling and all(worker.ready for worker in self._hands.values())

    def start(self) -> None:
        for number in range(self._count):
            self._hands[number] = self._hire(number)

    def _hire(self, number: int) -> Worker:
        worker = Worker(number, self._launch, self._changed)
        worker.keeping = self._tasks.spawn(worker.child.keep(), worker.child.name)
        return worker

    async def watch(self) -> None:
        """Look after them until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for worker in self._hands.values():
                worker.look()

    async def ready(self) -> None:
        """Returns when one of them answers requests."""
        await self._answering.wait()

    def _changed(self) -> None:
        if any(worker.ready for worker in self._hands.values()):
            self._answering.set()
        self._on_change()

    def reload(self) -> None:
        for worker in (*self._hands.values(), *self._passing):
            worker.reload()

    async def roll(self, drain_s: float) -> int:
        """Replace one after another, until a replacement does not become ready. How many were replaced."""
        self._rolling = True
        try:
            return await self._replace(drain_s)
        finally:
            self._rolling = False
            self._on_change()

    async def _replace(self, drain_s: float) -> int:
        for done, (number, old) in enumerate(list(self._hands.items())):
            fresh = self._hire(number)
            self._passing.add(fresh)
            ready = await fresh.settle(ROLL_S)
            leaving = old if ready else fresh
            self._passing.add(leaving)
            if ready:
                self._passing.discard(fresh)
                self._hands[number] = fresh
            await leaving.leave(drain_s + GRACE_S)
            self._passing.discard(leaving)
            self._starts += leaving.child.starts
            self._ends.update(leaving.child.ends)
            self._ends["rolling"] += ready
            self._on_change()
            if not ready:
                return done
        return self._count

    def refuse(self, why: str) -> None:
        """Remember, for /health, why the last roll was not done; empty when it was."""
        self._refused = why
        self._on_change()

    def hurry(self) -> None:
        """Kill the workers at once, without waiting for streams to end."""
        self._hurry.set()
        for worker in (*self._hands.values(), *self._passing):
            worker.child.signal(signal.SIGKILL)

    async def end(self, delay_s: float, drain_s: float) -> None:
        """Not ready from now on; for `delay_s` all is served; then what is open is finished within `drain_s`."""
        everyone = {*self._hands.values(), *self._passing}
        for worker in everyone:
            if worker.ready:
                worker.child.signal(signal.SIGUSR1)
        if delay_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), delay_s)
        await self._tasks.aclose()  # from here on nobody is started again
        await asyncio.gather(*(worker.leave(drain_s + GRACE_S) for worker in everyone))
