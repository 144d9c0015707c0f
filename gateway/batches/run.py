"""Runs one batch: sends the lines through the pipeline and writes the results."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

import orjson

from gateway.admission.load_shedding import LoadShedder
from gateway.batches.batch import Batch, Ended
from gateway.batches.files import Files
from gateway.batches.forms import FORMS, MESSAGES, Line, asked
from gateway.batches.order import Queue, undone
from gateway.batches.results import Results
from gateway.batches.sums import tokens
from gateway.dialects.controls import check_overrides, parse_controls
from gateway.dialects.facts import FACTS
from gateway.dialects.requests.forwarding import check_forwarding
from gateway.domain.record import Record, new_request_id
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.errors import AllBackendsFailed, GatewayError, LedgerUnavailable, LimitExceeded, Overloaded
from gateway.pipeline import Pipeline
from gateway.policy.tenants import Tenants
from gateway.runtime.off_loop import LARGE_BYTES

log = logging.getLogger(__name__)

LINES = 4
"""Maximum lines of one batch in progress at a time."""
TRIES = 4
"""Maximum failed attempts of a line. An attempt that only has to wait, for example for a rate limit, does not count: it
is repeated until the batch expires."""
_LONGEST_WAIT_S = 300.0
"""Maximum seconds before a retry, even if a backend or a budget asks for more. The reason to wait may be gone
earlier."""
QUERY = b"?"
"""The key under which the query string is stored among the headers of a batch. No header can have this name."""


class CacheRecall(Protocol):
    """The interface to the stored responses of the Responses API: inserts stored items into requests that refer to
    them, and stores answers.
    """

    async def recall(self, request: CompletionRequest, tenant: Tenant) -> None:
        """Insert the stored items to which `request` refers. Raises GatewayError."""
        ...

    async def keep(self, request: CompletionRequest, tenant: Tenant, answer: bytes | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends single lines of batches through the pipeline."""

    pipeline: Pipeline
    tenants: Tenants
    overload: LoadShedder
    memory: CacheRecall
    deadline_s: float

    async def send(self, batch: Batch, line: Line, request_id: str) -> bytes:
        """Send a line once, under the team's present policy. Returns the line of the result. Raises GatewayError."""
        tenant = await self.tenants.find_of_key(batch.key_id)  # another worker may have taken the batch of a new key
        headers = wire_headers(batch)
        controls = parse_controls(headers)._replace(priority="batch", deadline_s=None)
        check_overrides(controls, tenant.policy)

        def read() -> CompletionRequest:
            request = asked(line, batch.endpoint, request_id, controls, headers)
            check_forwarding(request, tenant.policy)
            return request

        request = await self.pipeline.off_loop.run(read) if len(line.body) > LARGE_BYTES else read()
        request.query = headers.get(QUERY, b"")
        if FACTS[request.dialect].answers_have_ids:
            await self.memory.recall(request, tenant)
        record = Record(request_id, tenant, request.model, request.dialect, stream=False)
        record.tags.update(request.controls.tags)
        record.tags["batch"] = batch.id
        record.session = request.controls.session
        deadline = asyncio.get_running_loop().time() + self.deadline_s
        self.overload.enter(tenant.team, batch=True)
        try:
            async with await self.pipeline.serve(request, tenant, record, deadline) as reply:
                body = reply.whole()
                if request.store:
                    await self.memory.keep(request, tenant, body)
                return FORMS[batch.endpoint].answered(line.custom_id, reply.answer.status, request_id, body)
        finally:
            self.overload.leave(tenant.team, batch=True)


def wire_headers(batch: Batch) -> dict[bytes, bytes]:
    """The headers that the client sent when it created the batch. They apply to all lines of the batch."""
    kept: dict[str, str] = orjson.loads(batch.headers or "{}")
    return {name.encode(): value.encode("latin-1") for name, value in kept.items()}


class Run:
    """Runs one batch. A line with a stored result is never sent again. If the process dies while a line is in progress,
    the line is sent again."""

    def __init__(self, batch: Batch, files: Files, sender: Sender, *, wait_s: float) -> None:
        """`wait_s`: seconds before the first retry of a line. Each further pause is twice as long."""
        self.batch, self._sender, self._wait_s = batch, sender, wait_s
        self._form = FORMS[batch.endpoint]
        self._input = files.path(batch.input_file_id)
        self._paths = files.path(batch.result_id("output")), files.path(batch.result_id("error"))
        self._results: Results | None = None
        self._stop = asyncio.Event()
        self.ending = "completed"
        """The status with which the batch ends. Empty: the batch does not end, and another process will continue it."""
        self.stored_counts = (0, 0)
        """The `counts` that were last stored in the database."""

    @property
    def counts(self) -> tuple[int, int]:
        """The number of lines that have a result so far: (completed, failed)."""
        return (self._results.output.lines, self._results.errors.lines) if self._results else (0, 0)

    def stop(self, ending: str) -> None:
        """Send no further lines. `ending`: the batch's status when it ends. Only the first call has an effect."""
        if not self._stop.is_set():
            self.ending = ending
            self._stop.set()

    async def go(self) -> None:
        """Send lines until each line has a result, or until `stop` is called. If the batch was cancelled or has
        expired, the lines that were not sent get a result, too. Raises OSError."""
        results = self._results = await asyncio.to_thread(Results, *self._paths, self._form)
        await self._send_all(results)
        self.stop("completed")
        if self.ending in ("cancelled", "expired"):
            await asyncio.to_thread(self._write_unanswered, results)

    async def ended(self) -> Ended:
        """The values to store for the end of the batch. Raises OSError."""
        results = self._results
        assert results is not None
        usage = None if self.batch.endpoint == MESSAGES else await asyncio.to_thread(tokens, self._paths[0])
        sizes = {"output": results.output.size, "error": results.errors.size}
        return Ended(self.ending, sizes, self.counts, results.unsent, usage)

    def close(self) -> None:
        if self._results is not None:
            self._results.close()

    def tidy(self) -> None:
        """Delete those result files that are empty. This blocks."""
        for path in self._paths:
            if path.exists() and not path.stat().st_size:
                path.unlink()

    async def _send_all(self, results: Results) -> None:
        with await asyncio.to_thread(Queue, self._input, self._form, results.done) as queue:
            async with asyncio.TaskGroup() as group:
                for _ in range(LINES):
                    group.create_task(self._send(queue, results))

    async def _send(self, queue: Queue, results: Results) -> None:
        """Send lines one after the other, until the queue is empty or the run is stopped."""
        while not self._stop.is_set() and (taken := await queue.take()):
            group, line = taken
            try:
                await self._line(results, line)
            finally:
                await queue.leave(group)

    async def _line(self, results: Results, line: Line) -> None:
        """Send a line until it has a result, and store this result. If the run stops while the line waits for a retry,
        no result is stored."""
        failures = 0
        while not self._stop.is_set():
            request_id = new_request_id()
            try:
                result = await self._sender.send(self.batch, line, request_id)
            except GatewayError as error:
                failures += not passes(error)
                if error.retryable and failures < TRIES:
                    wait_s = error.retry_after_s or self._wait_s * 2 ** max(0, failures - 1)
                    await self._wait(min(wait_s, _LONGEST_WAIT_S))
                    continue
                await self._refuse(results, line, request_id, error)
            except Exception:
                log.exception("request %s failed inside the gateway", request_id)
                failure = GatewayError(f"The gateway failed to process this request; its id is {request_id}.")
                await self._refuse(results, line, request_id, failure)
            else:
                await self._write(results, line, result, failed=False)
            return

    async def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the run is stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass

    async def _refuse(self, results: Results, line: Line, request_id: str, error: GatewayError) -> None:
        result = self._form.refused(line.custom_id, request_id, error)
        await self._write(results, line, result, failed=True)

    async def _write(self, results: Results, line: Line, result: bytes, *, failed: bool) -> None:
        """Store a result. If the disk refuses it, try again until the result is stored, because the answer has cost
        money."""
        written = False
        while not written:
            try:
                await asyncio.to_thread(results.add, line.custom_id, result, failed=failed)
                written = True
            except OSError as error:
                log.warning("a result of %s waits for the disk: %s", self.batch.id, error)
                await asyncio.sleep(self._wait_s)

    def _write_unanswered(self, results: Results) -> None:
        """Store a result for every line that was not sent and so has no result yet. This blocks."""
        for line in undone(self._input, self._form, results.done):
            name = f"{self.batch.name}_{line.number}"
            result = self._form.unanswered(line.custom_id, name, self.ending)
            results.add(line.custom_id, result, failed=True, unsent=True)


def passes(error: GatewayError) -> bool:
    """Return whether the same line may succeed later. This is true for limits, overload and temporary failures.
    Such errors do not count towards the maximum number of attempts, `TRIES`.
    """
    if isinstance(error, LimitExceeded):
        return error.retry_after_s is not None  # otherwise the line by itself exceeds the limit
    if isinstance(error, AllBackendsFailed):
        return error.status != 502
    return isinstance(error, Overloaded | LedgerUnavailable)
