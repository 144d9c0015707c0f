"""One batch under way: sends its lines through the pipeline, a few at a time, and writes their results down."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.admission.overload import Overload
from gateway.batches import lines
from gateway.batches.files import Files
from gateway.batches.jobs import Batch
from gateway.batches.lines import Line
from gateway.batches.results import Results
from gateway.domain.record import Record, new_request_id
from gateway.errors import AllBackendsFailed, GatewayError, LedgerUnavailable, LimitExceeded, Overloaded
from gateway.pipeline import Pipeline
from gateway.policy.tenants import Tenants

log = logging.getLogger(__name__)

LINES = 4
"""Under way at a time."""
TRIES = 4
"""Of a line whose backends failed. What only has to wait, say for a limit, is tried until the batch expires."""
PAGE = 64
"""Lines read at once."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Answers one line, once."""

    pipeline: Pipeline
    tenants: Tenants
    overload: Overload
    deadline_s: float

    async def send(self, batch: Batch, line: Line, request_id: str) -> bytes:
        """Its result, under the policy in force now. Raises GatewayError."""
        tenant = self.tenants.of_key(batch.key_id)
        request = lines.asked(line, batch.endpoint, request_id)
        record = Record(request_id, tenant, request.model, request.dialect, stream=False)
        record.tags["batch"] = batch.id
        deadline = asyncio.get_running_loop().time() + self.deadline_s
        self.overload.enter(tenant.team, batch=True)
        try:
            async with await self.pipeline.serve(request, tenant, record, deadline) as reply:
                return lines.answered(line.custom_id, reply.answer.status, request_id, reply.whole())
        finally:
            self.overload.leave(tenant.team, batch=True)


class Run:
    """A line whose result is written down is never sent again; one in flight when the process is killed is."""

    def __init__(self, batch: Batch, files: Files, sender: Sender, *, wait_s: float) -> None:
        """`wait_s` before a line is tried again, twice that before the next time."""
        self.batch, self._sender, self._wait_s = batch, sender, wait_s
        self._input = files.path(batch.input_file_id)
        self._paths = files.path(batch.result_id("output")), files.path(batch.result_id("error"))
        self._results: Results | None = None
        self._stop = asyncio.Event()
        self.ending = "completed"
        """The batch's last status; empty: it goes on in another process."""
        self.told = (0, 0)
        """The counts that SQL knows."""

    @property
    def counts(self) -> tuple[int, int]:
        """Lines (completed, failed) so far."""
        return (self._results.output.lines, self._results.errors.lines) if self._results else (0, 0)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of its result files so far."""
        return {"output": self._results.output.size, "error": self._results.errors.size} if self._results else {}

    def stop(self, ending: str) -> None:
        """No further line is sent. The first reason counts."""
        if not self._stop.is_set():
            self.ending = ending
            self._stop.set()

    async def go(self) -> None:
        """Until every line has a result, or it was stopped and those in flight have. Raises OSError."""
        results = self._results = await asyncio.to_thread(Results, *self._paths)
        await self._send_all(results)
        if self.ending in ("cancelled", "expired"):
            await asyncio.to_thread(self._tell_unanswered, results)

    def close(self) -> None:
        if self._results is not None:
            self._results.close()

    def tidy(self) -> None:
        """A result file without results is none. Off the loop only."""
        for path, size in zip(self._paths, self.sizes.values(), strict=True):
            if not size:
                path.unlink(missing_ok=True)

    async def _send_all(self, results: Results) -> None:
        slots = asyncio.Semaphore(LINES)
        undone = self._undone(results)
        async with asyncio.TaskGroup() as group:
            while page := await asyncio.to_thread(lambda: list(itertools.islice(undone, PAGE))):
                for line in page:
                    await slots.acquire()
                    if self._stop.is_set():
                        return
                    group.create_task(self._line(results, line)).add_done_callback(lambda _: slots.release())

    async def _line(self, results: Results, line: Line) -> None:
        """Nothing is written when the run stops while the line waits to be tried again."""
        failures = 0
        while not self._stop.is_set():
            request_id = new_request_id()
            try:
                result = await self._sender.send(self.batch, line, request_id)
            except GatewayError as error:
                failures += not passes(error)
                if error.retryable and failures < TRIES:
                    await self._rest(error.retry_after_s or self._wait_s * 2 ** max(0, failures - 1))
                    continue
                await self._refuse(results, line, request_id, error)
            except Exception:
                log.exception("request %s failed inside the gateway", request_id)
                failure = GatewayError(f"The gateway failed at this request; its id is {request_id}.")
                await self._refuse(results, line, request_id, failure)
            else:
                await self._write(results, line, result, failed=False)
            return

    async def _rest(self, seconds: float) -> None:
        """Until then, or until it is stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass

    async def _refuse(self, results: Results, line: Line, request_id: str, error: GatewayError) -> None:
        told = lines.refused(line.custom_id, request_id, self.batch.endpoint, error)
        await self._write(results, line, told, failed=True)

    async def _write(self, results: Results, line: Line, result: bytes, *, failed: bool) -> None:
        """Until the disk takes it: what was paid for is not thrown away."""
        written = False
        while not written:
            try:
                await asyncio.to_thread(results.add, line.custom_id, result, failed=failed)
                written = True
            except OSError as error:
                log.warning("a result of %s waits for the disk: %s", self.batch.id, error)
                await asyncio.sleep(self._wait_s)

    def _undone(self, results: Results) -> Iterator[Line]:
        """Off the loop only. The lines were validated when the batch was made."""
        return undone(self._input, self.batch.endpoint, results)

    def _tell_unanswered(self, results: Results) -> None:
        """A result for every line that has none. Off the loop only."""
        for line in self._undone(results):
            told = lines.unanswered(line.custom_id, self.batch.id, line.number, self.ending)
            results.add(line.custom_id, told, failed=True)


def undone(path: Path, endpoint: str, results: Results) -> Iterator[Line]:
    """The lines of a file that have no result yet."""
    for number, raw in lines.numbered(path):
        if not raw.strip():
            continue
        line = lines.read(number, raw, endpoint)
        if line.custom_id not in results.done:
            yield line


def passes(error: GatewayError) -> bool:
    """Does it say nothing against the line, only that its time has not come?"""
    if isinstance(error, LimitExceeded):
        return error.retry_after_s is not None  # otherwise the line is larger than its limit
    if isinstance(error, AllBackendsFailed):
        return error.status != 502
    return isinstance(error, Overloaded | LedgerUnavailable)
