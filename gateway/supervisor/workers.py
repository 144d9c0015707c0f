"""Runs the workers of this host: restarts workers that end or freeze, and replaces all of them one by one on
request."""

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

CHECK_S = 1.0
SILENT_S = 10.0
"""Seconds without a heartbeat after which a worker that accepts connections counts as frozen. A ready worker sends a
heartbeat every second."""
OPEN_S = 60.0
"""Maximum seconds until a new worker accepts connections."""
ROLL_S = 60.0
"""Maximum seconds that a rolling restart waits until a replacement is ready. After that, the old worker stays."""
GRACE_S = 5.0
"""Seconds for a worker to close its files and connections after the time for its streams. Then it is killed."""
CAUSES = ("exit", "SIGKILL", "SIGSEGV", "frozen", "slow start", "not started", "rolling")
"""The usual causes of the end of a worker's process. Their counters are published from 0 on, so that the first increase
is visible in /metrics."""

Launch = Callable[[int, int], Awaitable[Process]]
"""A function that starts the process of a worker. Its parameters are the worker's number and the file descriptor of the
pipe for heartbeats. Raises OSError."""


class Worker:
    """One worker. The object stays the same when the worker's process is replaced."""

    def __init__(self, number: int, launch: Launch, on_change: Callable[[], None]) -> None:
        self.child = ChildProcess(
            f"worker {number}", partial(self._start, number, launch), on_change=self._changed, last_error=self._error
        )
        self._on_change = on_change
        self._heartbeat: Heartbeat | None = None
        self._news = asyncio.Event()
        self._reload = False
        self.keeping: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        return self.child.pid is not None and self._heartbeat is not None and self._heartbeat.stage == "ready"

    async def _start(self, number: int, launch: Launch) -> Process:
        if self._heartbeat:
            self._heartbeat.close()
        self._heartbeat = Heartbeat(self._changed)
        try:
            return await launch(number, self._heartbeat.writer)
        finally:
            self._heartbeat.hand_over()

    def _error(self) -> str:
        if self._heartbeat is None:
            return ""
        self._heartbeat.listen()
        return self._heartbeat.error

    def _changed(self) -> None:
        if self._reload and self._heartbeat and self._heartbeat.stage:
            self._reload = False
            self.child.signal(signal.SIGHUP)
        self._news.set()
        self._on_change()

    def check(self) -> None:
        """Kill the worker's process if it is frozen, or has not become ready in time. `child.keep` then restarts it."""
        self.child.check()
        if self._heartbeat is None or self.child.pid is None:
            return
        self._heartbeat.listen()
        silent_s = asyncio.get_running_loop().time() - self._heartbeat.heard_at
        if silent_s > (SILENT_S if self._heartbeat.stage else OPEN_S):
            what = "is frozen" if self._heartbeat.stage else "did not start"
            log.error("%s (pid %d) %s: silent for %.0f s, killed", self.child.name, self.child.pid, what, silent_s)
            self.child.kill("frozen" if self._heartbeat.stage else "slow start")

    def reload(self) -> None:
        """Send SIGHUP to the worker's process, so that it reloads the policies. If the worker does not accept
        connections yet, the signal is sent later."""
        if self._heartbeat and self._heartbeat.stage:
            self.child.signal(signal.SIGHUP)
        else:
            self._reload = True

    async def settle(self, timeout_s: float) -> bool:
        """Wait until the worker answers requests. Returns False if it is not ready within `timeout_s` seconds or its
        process has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.ready and not self.child.short_lives:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return self.ready

    async def stop(self, timeout_s: float) -> None:
        """End the worker's process. If it has not ended after `timeout_s` seconds, kill it."""
        if self.keeping:
            self.keeping.cancel()
        await self.child.stop(timeout_s)
        if self._heartbeat:
            self._heartbeat.close()


class WorkerPool:
    """All workers of the host. Open it with `start` and close it with `stop`. Between these two calls, keep `watch`
    running."""

    def __init__(self, count: int, launch: Launch, on_change: Callable[[], None]) -> None:
        self._count, self._launch, self._on_change = count, launch, on_change
        self._workers: dict[int, Worker] = {}
        self._changing: set[Worker] = set()
        """Replacements that are not ready yet, and replaced workers that are finishing their streams."""
        self._tasks = Tasks()
        self._killed, self._answering = asyncio.Event(), asyncio.Event()
        self._refusal = ""
        self._rolling = False
        self._starts = 0
        self._ends = Counter(dict.fromkeys(CAUSES, 0))
        """Cause → number of ends of processes whose worker is no longer in the pool."""

    @property
    def pids(self) -> list[int]:
        return [worker.child.pid for worker in (*self._workers.values(), *self._changing) if worker.child.pid]

    @property
    def troubles(self) -> list[str]:
        """Sentences about troubles with workers and with restarts, for /health. Anyone can read them, so they contain
        no texts of errors."""
        found = [worker.child.trouble for worker in (*self._workers.values(), *self._changing)]
        return [trouble for trouble in (*found, self._refusal) if trouble]

    def figures(self) -> Iterator[Figure]:
        workers = (*self._workers.values(), *self._changing)
        yield "workers_wanted", (), self._count
        yield "workers_ready", (), sum(worker.ready for worker in self._workers.values())
        yield "worker_starts", (), self._starts + sum(worker.child.starts for worker in workers)
        ends = self._ends.copy()
        for worker in workers:
            ends.update(worker.child.ends)
        yield from by_cause("worker_ends", ends)

    def processes(self) -> Iterator[tuple[str, int | None]]:
        for worker in self._workers.values():
            yield worker.child.name, worker.child.pid

    @property
    def at_rest(self) -> bool:
        """Whether all workers are ready and no rolling restart is in progress."""
        return bool(self._workers) and not self._rolling and all(worker.ready for worker in self._workers.values())

    def start(self) -> None:
        for number in range(self._count):
            self._workers[number] = self._add(number)

    def _add(self, number: int) -> Worker:
        worker = Worker(number, self._launch, self._changed)
        worker.keeping = self._tasks.spawn(worker.child.keep(), worker.child.name)
        return worker

    async def watch(self) -> None:
        """Check all workers again and again, and kill frozen ones, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            for worker in self._workers.values():
                worker.check()

    async def ready(self) -> None:
        """Wait until a worker answers requests for the first time. Returns at once if a worker has already answered."""
        await self._answering.wait()

    def _changed(self) -> None:
        if any(worker.ready for worker in self._workers.values()):
            self._answering.set()
        self._on_change()

    def reload(self) -> None:
        for worker in (*self._workers.values(), *self._changing):
            worker.reload()

    async def roll(self, drain_s: float) -> int:
        """Replace the workers one by one. Stop if a new worker does not become ready. `drain_s`: seconds in which the
        streams of an old worker may end. Returns the number of replaced workers."""
        self._rolling = True
        try:
            return await self._replace(drain_s)
        finally:
            self._rolling = False
            self._on_change()

    async def _replace(self, drain_s: float) -> int:
        for done, (number, old) in enumerate(list(self._workers.items())):
            fresh = self._add(number)
            self._changing.add(fresh)
            ready = await fresh.settle(ROLL_S)
            leaving = old if ready else fresh
            self._changing.add(leaving)
            if ready:
                self._changing.discard(fresh)
                self._workers[number] = fresh
            await leaving.stop(drain_s + GRACE_S)
            self._changing.discard(leaving)
            self._starts += leaving.child.starts
            self._ends.update(leaving.child.ends)
            self._ends["rolling"] += ready
            self._on_change()
            if not ready:
                return done
        return self._count

    def note_refusal(self, why: str) -> None:
        """Store why the last rolling restart was not completed; /health shows this reason. Empty: the restart was
        completed."""
        self._refusal = why
        self._on_change()

    def kill(self) -> None:
        """Kill all workers at once, without waiting for streams to end."""
        self._killed.set()
        for worker in (*self._workers.values(), *self._changing):
            worker.child.signal(signal.SIGKILL)

    async def stop(self, delay_s: float, drain_s: float) -> None:
        """Stop all workers. `delay_s`: seconds for which they serve on while the readiness endpoint says "not ready".
        `drain_s`: seconds after that in which streams may end."""
        everyone = {*self._workers.values(), *self._changing}
        for worker in everyone:
            if worker.ready:
                worker.child.signal(signal.SIGUSR1)
        await self._tasks.aclose()  # from here on, no worker is restarted: it would have no socket
        if delay_s:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._killed.wait(), delay_s)
        await asyncio.gather(*(worker.stop(drain_s + GRACE_S) for worker in everyone))
