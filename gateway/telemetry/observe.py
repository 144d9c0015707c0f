"""The interface of telemetry. The pipeline calls it at the beginning and at the end of a request. Most of the work is
done after the answer."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.domain.protocols import Archive
from gateway.domain.record import Record
from gateway.domain.text.truncation import cut
from gateway.errors import GatewayError
from gateway.runtime.tasks import Tasks
from gateway.settings.environment import otlp_endpoint
from gateway.settings.gateway import TelemetrySettings
from gateway.state.redis.connection import State
from gateway.telemetry.access import AccessLog
from gateway.telemetry.exposition import text
from gateway.telemetry.flight import FLUSH_S, FlightRecords
from gateway.telemetry.host import PUBLISH_S, Host, Publisher, report
from gateway.telemetry.metrics import Stats, Totals, figures
from gateway.telemetry.spans import Exporter
from gateway.telemetry.trace_parent import read_parent

log = logging.getLogger(__name__)

_LONGEST_WHY = 500
"""Maximum characters of a refusal's message in a flight record."""


class Telemetry:
    """Records metrics, spans, log lines and flight records.

    Spans of errors, escalations, retries, degraded and slow requests are always exported. The spans of any other
    request are exported if a random sample contains the request, or if the client exports the trace.
    """

    def __init__(
        self,
        settings: TelemetrySettings,
        state: State,
        *,
        archive: Archive | None = None,
        board: Path | None = None,
        worker: int = 0,
    ) -> None:
        """`archive`: finds requests without a flight record. `board`: directory of this host's published figures;
        None: there is only one worker.
        """
        self._settings = settings
        self._board, self._worker = board, worker
        self._publisher: Publisher | None = None
        self._turn = asyncio.Lock()
        self._parts: dict[str, Stats] = {}
        self._tasks = Tasks()
        self._exporter = Exporter(totals := Totals(), self._parts)
        self.totals = totals
        self.flights = FlightRecords(state, archive)
        self._access = AccessLog(settings.access_log)
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, part: str, stats: Stats) -> None:
        """Export the figures of `part` as metrics. `stats`: function that returns the current figures; it is called
        at each export.
        """
        self._parts[part] = stats

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        if otlp_endpoint():
            await asyncio.to_thread(self._exporter.open, __version__)
        self._tasks.spawn(self._run(), "flight records and access log")
        if self._board:
            try:
                self._publisher = await asyncio.to_thread(Publisher, self._board, self._worker)
            except OSError as error:
                log.error(
                    "/metrics of this worker shows only its own figures, because %s is not usable: %s",
                    self._board,
                    error,
                )
            else:
                self._tasks.spawn(self._publish_forever(self._publisher), "figures")

    async def aclose(self) -> None:
        await self._tasks.aclose()
        if self._publisher:
            await self._publish(self._publisher)
            self._publisher.close()
        await self.flights.flush()
        await asyncio.to_thread(self._access.flush)
        await asyncio.to_thread(self._exporter.close)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self.flights.flush()
                if self._access:
                    await asyncio.to_thread(self._access.flush)
                if self._exporter.waiting:
                    await asyncio.to_thread(self._exporter.flush)
            except Exception:  # one faulty record must not stop the others
                log.exception("flight records or access log could not be written")

    def begin(self, record: Record) -> None:
        """Count a request as in progress. For each request, `end` is called later."""
        self.totals.in_flight += 1

    def end(self, record: Record, error: BaseException | None) -> None:
        """Record a finished request. `error`: the exception with which it ended. Never raises."""
        self.totals.in_flight -= 1
        if error is not None:
            _failed(record, error)
        # faster than `round(…, 3)`, which converts to text
        record.duration_ms = round((time.perf_counter() - record.started) * 1e6) / 1000
        try:
            self.totals.add(record)
            self._access.request(record)
            self.flights.add(record)
            if self._exporter.is_open:
                self._exporter.latencies.add(record)
                if self._kept(record):
                    self._exporter.emit(record)
        except Exception:  # the client already has the answer
            log.exception("request %s is missing from the figures", record.request_id)

    def _kept(self, record: Record) -> bool:
        """Whether the spans of the request are exported."""
        if self._eventful(record) or random.random() < self._settings.sample:  # noqa: S311
            return True
        if not record.trace or not self._settings.client_sampled:
            return False
        parent = read_parent(record.trace)
        return parent is not None and parent.sampled

    def _eventful(self, record: Record) -> bool:
        return bool(
            record.error
            or record.escalated
            or record.degraded
            or len(record.attempts) > 1
            or (record.duration_ms or 0.0) >= self._settings.slow * 1000
        )

    def refused(self, request_id: str, error: GatewayError, path: str) -> None:
        """Count and log a request refused before its team was known, for example for an invalid key."""
        self.totals.refused[(error.code,)] += 1
        self._access.refusal(request_id, error.status, error.code, path)

    async def _publish_forever(self, publisher: Publisher) -> None:
        while True:
            await self._publish(publisher)
            await asyncio.sleep(PUBLISH_S)

    async def _publish(self, publisher: Publisher) -> dict[str, Any]:
        """Publish this worker's figures and return them. Calls run one after the other, so that older figures never
        replace newer ones."""
        async with self._turn:
            published = self._report()
            await asyncio.to_thread(publisher.publish, published)
        return published

    def _report(self) -> dict[str, Any]:
        return report(self._worker, self.totals, figures(self._parts))

    async def exposition(self) -> bytes:
        """The text for Prometheus. Other workers' figures are up to `PUBLISH_S` seconds old."""
        publisher = self._publisher
        if publisher is None:
            host = Host()
            host.add(self._report(), living=True)
            return await asyncio.to_thread(text, host)
        published = await self._publish(publisher)  # first, so that counters never decrease, even if this worker dies
        return await asyncio.to_thread(lambda: text(publisher.collect(published)))

    async def flight(self, request_id: str, team: str) -> dict[str, Any] | None:
        return await self.flights.find(request_id, team)

    def stats(self) -> Mapping[str, int | float | str]:
        return {
            "in_flight": self.totals.in_flight,
            "spans": self._exporter.spans,
            "flights_dropped": self.flights.dropped,
            "tasks": len(asyncio.all_tasks(self._loop)) if self._loop else 0,
        }


def _failed(record: Record, error: BaseException) -> None:
    if isinstance(error, GatewayError):
        record.status, record.error = error.status, error.code
        record.note(
            "refused" if error.status < 500 else "failed", code=error.code, why=cut(error.message, _LONGEST_WHY)
        )
    elif isinstance(error, asyncio.CancelledError):
        record.error = record.error or "client_closed_request"
        record.status = 499  # nginx's status for a client that closed the connection
    else:
        record.status, record.error = 500, type(error).__name__
