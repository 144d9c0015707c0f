"""Runs all batches. One process per data directory does this. If that process dies, another process continues."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time

from sqlalchemy.exc import SQLAlchemyError

from gateway.admission.load_shedding import LoadShedder
from gateway.batches.batch import Batch, Ended
from gateway.batches.files import GONE_S, Files
from gateway.batches.jobs import Jobs
from gateway.batches.run import CacheRecall, Run, Sender
from gateway.domain.protocols import Clock
from gateway.pipeline import Pipeline
from gateway.policy.tenants import Tenants
from gateway.runtime.tasks import Tasks, repeat

log = logging.getLogger(__name__)

TICK_S = 0.5
BATCHES = 4
"""Maximum batches in progress at a time. No two belong to the same team, so a long batch does not delay other teams."""
DRAIN_S = 3.0
SWEEP_S = 60.0


class Runner:
    """Runs batches until it is closed. The next runner continues unfinished batches."""

    def __init__(
        self,
        jobs: Jobs,
        files: Files,
        pipeline: Pipeline,
        tenants: Tenants,
        overload: LoadShedder,
        memory: CacheRecall,
        *,
        deadline_s: float,
        tick_s: float = TICK_S,
        wait_s: float = 1.0,
        clock: Clock = time,
    ) -> None:
        """`deadline_s`: maximum seconds of one attempt of a line. `wait_s`: seconds between the first and the second
        attempt of a line."""
        self._jobs, self._files, self._sender = jobs, files, Sender(pipeline, tenants, overload, memory, deadline_s)
        self._tick_s, self._wait_s, self._clock = tick_s, wait_s, clock
        self._tasks = Tasks()
        self._follower: asyncio.Task[None] | None = None
        self._runs: dict[str, Run] = {}
        self._lock = -1
        self._ended = 0
        self._swept = 0.0

    async def open(self) -> None:
        """Start the runner. Never raises: if the disk or the database fails, the runner tries again in the
        background."""
        self._follower = self._tasks.spawn(self._follow(), "batches")

    async def aclose(self) -> None:
        """Stop the runner. Lines in progress get `DRAIN_S` seconds to end. The next runner sends the remaining
        lines."""
        if self._follower is not None:
            self._follower.cancel()
        for run in self._runs.values():
            run.stop("")
        await self._tasks.drain(DRAIN_S)
        await self._tasks.aclose()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def stats(self) -> dict[str, int | float | str]:
        return {"runner": int(self._lock >= 0), "running": len(self._runs), "ended": self._ended}

    async def _follow(self) -> None:
        """Find unfinished batches, and start and stop their runs, until cancelled."""

        async def look() -> None:
            if self._lock >= 0 or await asyncio.to_thread(self._acquire):
                await self._tick()

        await repeat(look, self._tick_s, _troubled, SQLAlchemyError, OSError)

    def _acquire(self) -> bool:
        """Become the runner of this data directory by taking a lock. Returns False if another process has the lock. The
        lock is released when this process ends."""
        fd = os.open(self._files.path("runner.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._lock = fd
        return True

    async def _tick(self) -> None:
        await self._count()
        for batch in await self._jobs.unfinished():
            run = self._runs.get(batch.id) or await self._take(batch)
            if run is None:
                continue
            if batch.status == "cancelling":
                run.stop("cancelled")
            elif self._clock.time() >= batch.expires_at:
                run.stop("expired")
        await self._sweep()

    async def _sweep(self) -> None:
        """Delete expired files, at most once every `SWEEP_S` seconds."""
        now = self._clock.time()
        if now >= self._swept + SWEEP_S:
            self._swept = now
            await self._files.sweep(now)

    async def _count(self) -> None:
        """Store the progress of all batches whose counts have changed."""
        moved = {run: run.counts for run in self._runs.values() if run.counts != run.stored_counts}
        if moved:
            await self._jobs.count({run.batch.id: counts for run, counts in moved.items()})
        for run, counts in moved.items():
            run.stored_counts = counts

    async def _take(self, batch: Batch) -> Run | None:
        """Start a run of the batch, and return it. None if the batch's team already has a run, if too many batches run,
        or if the file is on another host."""
        if len(self._runs) >= BATCHES or any(run.batch.team == batch.team for run in self._runs.values()):
            return None
        if not await asyncio.to_thread(self._files.path(batch.input_file_id).exists):
            # The batch's own host may be about to continue it.
            if self._clock.time() >= batch.expires_at + GONE_S:
                await self._jobs.finish(batch, Ended("expired", counts=(batch.completed, batch.failed)))
            return None
        run = self._runs[batch.id] = Run(batch, self._files, self._sender, wait_s=self._wait_s)
        self._tasks.spawn(self._work(run), batch.id)
        return run

    async def _work(self, run: Run) -> None:
        try:
            if not await self._jobs.begin(run.batch):
                return
            await run.go()
            if run.ending:
                if run.ending == "completed":
                    await self._jobs.finalize(run.batch, run.counts)
                await self._jobs.finish(run.batch, await run.ended())
                await asyncio.to_thread(run.tidy)
                self._ended += 1
        except Exception as error:  # after any error, stored results stay, and a later tick continues the batch
            log.exception("batch %s is paused: %s", run.batch.id, error)
            await asyncio.sleep(10 * self._wait_s)
        finally:
            run.close()
            del self._runs[run.batch.id]


def _troubled(error: Exception) -> None:
    log.warning("batches wait, because the database or the disk fails: %s", error)
