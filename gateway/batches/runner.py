"""Answers the lines of all batches, a few at a time: one runner per data directory, taken over when it dies."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator

from sqlalchemy.exc import SQLAlchemyError

from gateway.batches import lines
from gateway.batches.files import Files
from gateway.batches.jobs import Batch, Jobs
from gateway.batches.lines import Line
from gateway.batches.results import Results
from gateway.domain.protocols import Clock
from gateway.domain.record import Record, new_request_id
from gateway.domain.tasks import Tasks
from gateway.errors import GatewayError, LedgerUnavailable, LimitExceeded, Overloaded
from gateway.pipeline import Pipeline
from gateway.policy.tenants import Tenants

log = logging.getLogger(__name__)

TICK_S = 0.5
BATCHES = 4
"""Under way at a time, never two of one team: nobody's long batch makes everybody wait."""
LINES = 4
"""Of one batch under way at a time."""
TRIES = 3
"""Of a line whose backends failed. What only has to wait, for a limit or for the disk, is tried until it expires."""
DRAIN_S = 3.0
PAGE = 64
GONE_S = 3600.0
"""So long after its end a batch whose file is not here is told to be expired; before, its host may be about to."""


class Run:
    """One batch under way, and how it shall end."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.results: Results | None = None
        self.ending = "completed"
        """Its last status; empty: it goes on in another process."""
        self._stop = asyncio.Event()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self, ending: str) -> None:
        """No further line is sent. The first reason counts."""
        if not self.stopped:
            self.ending = ending
            self._stop.set()

    async def rest(self, seconds: float) -> None:
        """Until then, or until it is stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass


class Runner:
    """A line whose result is written down is never sent again; one in flight when the process is killed is."""

    def __init__(
        self,
        jobs: Jobs,
        files: Files,
        pipeline: Pipeline,
        tenants: Tenants,
        *,
        deadline_s: float,
        tick_s: float = TICK_S,
        wait_s: float = 1.0,
        clock: Clock = time,
    ) -> None:
        """`deadline_s` for each try of a line; `wait_s` before the second, twice that before the third."""
        self._jobs, self._files, self._pipeline, self._tenants = jobs, files, pipeline, tenants
        self._deadline_s, self._tick_s, self._wait_s, self._clock = deadline_s, tick_s, wait_s, clock
        self._tasks = Tasks()
        self._runs: dict[str, Run] = {}
        self._lock = -1
        self._done = {"completed": 0, "failed": 0}

    async def open(self) -> None:
        """Never raises: a disk or database that is away is tried again."""
        self._loop_task = self._tasks.spawn(self._follow(), "batches")

    async def aclose(self) -> None:
        """Lines in flight have a moment to end; the rest is for the next runner."""
        if hasattr(self, "_loop_task"):
            self._loop_task.cancel()
        for run in self._runs.values():
            run.stop("")
        await self._tasks.drain(DRAIN_S)
        await self._tasks.aclose()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def stats(self) -> dict[str, int | float | str]:
        return {"runner": int(self._lock >= 0), "batches": len(self._runs), **self._done}

    async def _follow(self) -> None:
        """Look after all batches, for ever."""
        failing = False
        while True:
            try:
                if self._lock >= 0 or await asyncio.to_thread(self._acquire):
                    await self._tick()
                failing = False
            except (SQLAlchemyError, OSError) as error:
                if not failing:
                    log.warning("batches wait, the database or the disk does not answer: %s", error)
                failing = True
            await asyncio.sleep(self._tick_s)

    def _acquire(self) -> bool:
        """Become the runner of this directory, unless another process is. The lock ends with the process."""
        fd = os.open(self._files.path("runner.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._lock = fd
        return True

    async def _tick(self) -> None:
        counts = {name: (run.results.output.lines, run.results.errors.lines)
                  for name, run in self._runs.items() if run.results}  # fmt: skip
        if counts:
            await self._jobs.count(counts)
        for batch in await self._jobs.unfinished():
            run = self._runs.get(batch.id) or await self._take(batch)
            if run is None:
                continue
            if batch.status == "cancelling":
                run.stop("cancelled")
            elif self._clock.time() >= batch.expires_at:
                run.stop("expired")

    async def _take(self, batch: Batch) -> Run | None:
        if len(self._runs) >= BATCHES or any(run.batch.team == batch.team for run in self._runs.values()):
            return None
        if not await asyncio.to_thread(self._files.path(batch.input_file_id).exists):
            if self._clock.time() >= batch.expires_at + GONE_S:
                await self._jobs.finish(batch, "expired", {}, batch.completed, batch.failed)
            return None
        run = self._runs[batch.id] = Run(batch)
        self._tasks.spawn(self._work(run), batch.id)
        return run

    async def _work(self, run: Run) -> None:
        batch = run.batch
        try:
            await self._jobs.begin(batch)
            paths = [self._files.path(batch.result_id(kind)) for kind in ("output", "error")]
            run.results = await asyncio.to_thread(Results, *paths)
            await self._send_all(run, run.results)
            if run.ending:
                await self._finish(run, run.results)
        except Exception as error:  # whatever it is, what is done stays done, and the next tick takes it up again
            log.exception("batch %s rests: %s", batch.id, error)
            await run.rest(GONE_S if run.stopped else 10 * self._wait_s)
        finally:
            if run.results is not None:
                run.results.close()
            del self._runs[batch.id]

    async def _finish(self, run: Run, results: Results) -> None:
        batch, output, errors = run.batch, results.output, results.errors
        if run.ending != "completed":
            await asyncio.to_thread(_tell_unanswered, self._files, run, results)
        sizes = {"output": output.size, "error": errors.size}
        await self._jobs.finish(batch, run.ending, sizes, output.lines, errors.lines)
        for file in (output, errors):
            if not file.size:
                await asyncio.to_thread(file.path.unlink, missing_ok=True)

    async def _send_all(self, run: Run, results: Results) -> None:
        slots = asyncio.Semaphore(LINES)
        async with asyncio.TaskGroup() as group:
            async for line in self._pending(run.batch, results):
                await slots.acquire()
                if run.stopped:
                    return
                group.create_task(self._line(run, results, line)).add_done_callback(lambda _: slots.release())

    async def _pending(self, batch: Batch, results: Results) -> AsyncIterator[Line]:
        """Lines without a result, read a page ahead of need."""
        found = _undone(self._files, batch, results)
        while page := await asyncio.to_thread(lambda: list(itertools.islice(found, PAGE))):
            for line in page:
                yield line

    async def _line(self, run: Run, results: Results, line: Line) -> None:
        """Answer a line and write its result down; nothing when the run stops before there is one."""
        request_id = new_request_id()
        tries = 0
        while not run.stopped:
            try:
                result, failed = await self._answer(run.batch, line, request_id), False
            except GatewayError as error:
                waits = isinstance(error, LimitExceeded | Overloaded | LedgerUnavailable) and error.retry_after_s
                tries += not waits
                if waits or (error.retryable and tries < TRIES):
                    await run.rest(waits or error.retry_after_s or self._wait_s * tries)
                    request_id = new_request_id()
                    continue
                result, failed = lines.refused(line.custom_id, request_id, run.batch.endpoint, error), True
            except Exception:
                log.exception("request %s failed inside the gateway", request_id)
                error = GatewayError(f"The gateway failed at this request; its id is {request_id}.")
                result, failed = lines.refused(line.custom_id, request_id, run.batch.endpoint, error), True
            await self._write(results, line.custom_id, result, failed)
            return

    async def _answer(self, batch: Batch, line: Line, request_id: str) -> bytes:
        """The result of a line, under the policy in force now. Raises GatewayError."""
        tenant = self._tenants.of_key(batch.key_id)
        request = lines.asked(line, batch.endpoint, request_id)
        record = Record(request_id, tenant, request.model, request.dialect, stream=False)
        record.tags["batch"] = batch.id
        deadline = asyncio.get_running_loop().time() + self._deadline_s
        async with await self._pipeline.serve(request, tenant, record, deadline) as reply:
            body = b"".join([piece async for piece in reply])
            return lines.answered(line.custom_id, reply.answer.status, request_id, body)

    async def _write(self, results: Results, custom_id: str, result: bytes, failed: bool) -> None:
        """Until the disk takes it: what was paid for is not thrown away."""
        while True:
            try:
                await asyncio.to_thread(results.add, custom_id, result, failed=failed)
            except OSError as error:
                log.warning("a batch's result waits for the disk: %s", error)
                await asyncio.sleep(self._wait_s)
            else:
                self._done["failed" if failed else "completed"] += 1
                return


def _undone(files: Files, batch: Batch, results: Results) -> Iterator[Line]:
    """Off the loop only. The lines were validated when the batch was made."""
    for number, raw in lines.numbered(files.path(batch.input_file_id)):
        line = lines.read(number, raw, batch.endpoint)
        if line.custom_id not in results.done:
            yield line


def _tell_unanswered(files: Files, run: Run, results: Results) -> None:
    """A result for every line that has none. Off the loop only."""
    batch = run.batch
    for line in _undone(files, batch, results):
        told = lines.unanswered(line.custom_id, batch.id, line.number, run.ending)
        results.add(line.custom_id, told, failed=True)
