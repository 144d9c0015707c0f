"""Reads a server's `/metrics` repeatedly in the background while the server's load is needed. One read is called a
scrape.

Requests go only to the scheme, host and port of the configured address. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

from gateway.backends.http.client import HttpClient, connect
from gateway.backends.load.exposition import Reading, read
from gateway.backends.resilience.drain import USUAL_S, BackendDrains
from gateway.domain.backend import Backend
from gateway.domain.routing.load import Load
from gateway.errors import BackendError, BackendUnreachable, StateUnavailable

log = logging.getLogger(__name__)

EVERY_S = 1.0
LOOK_S = 1.0
"""Timeout in seconds of one scrape."""
STALE_S = 5.0
"""Maximum age in seconds at which the result of a scrape is still used."""
QUIET_S = 30.0
"""Seconds after the last request for the load, after which scraping stops."""
CAPACITY_S = 120.0
"""Seconds after which a learned capacity is discarded, if no requests have waited since. Otherwise an increase of the
capacity would never be noticed."""
LONGEST_PAUSE_S = 60.0
"""Maximum seconds between two scrapes of a server whose metrics cannot be used. The pause doubles up to this maximum.
"""
NOTICE_S = 5.0
"""Maximum seconds between two checks for a spot notice, which announces that the cloud will stop the machine. AWS
announces the stop two minutes before, other clouds 30 seconds before."""
GONE_AFTER = 2
"""Number of consecutive failed scrapes (unreachable, or status 503) after which a server is regarded as gone."""
GONE_S = 10.0
"""Seconds for which a server that is regarded as gone is drained. A successful scrape ends the drain earlier."""
MOST_BYTES = 2 * 2**20
_PATH = "/metrics"
_NOT_NOW = 503
"""Status code of a server that cannot answer now. llama.cpp sends it while it loads its model. Gateways and load
balancers send it if the server behind them is gone."""
_GONE = "its server is not there"
_ENDING = "its machine will end"
_LEAST_KV_USED = 0.05
"""Minimum share of the KV cache in use. Below it, the capacity is not estimated from the KV cache."""
_NEWEST = 0.3
"""Weight of the newest scrape in the moving average of tokens per second."""


def watched(backend: Backend) -> bool:
    """Whether the server of the backend is checked for its load or for a spot notice."""
    reachable = backend.base_url.startswith(("http://", "https://"))
    return reachable and (reports_load(backend) or backend.spot_notice is not None)


def reports_load(backend: Backend) -> bool:
    """Whether the backend is a self-hosted server whose metrics may be read. Clouds have no metrics at this path."""
    by_the_hour = backend.price is not None and bool(backend.price.machine_hour_usd)
    own = (backend.facts.own_machine and not backend.simulated) or (by_the_hour and not backend.facts.why_hosted)
    return own if backend.metrics is None else backend.metrics


def _key_header(backend: Backend) -> list[tuple[bytes, bytes]]:
    """The header that authenticates a scrape, as calls of the backend's kind do; empty if the backend has no key."""
    if backend.api_key is None:
        return []
    key, name = backend.api_key.get_secret_value().encode(), backend.facts.key_header.encode()
    return [(name, key)] if name else [(b"authorization", b"Bearer " + key)]


class Scrape:
    """Scrapes the metrics of one server. Each call of `load` or `want` makes the scraping continue for another
    `QUIET_S` seconds."""

    def __init__(
        self,
        backend: Backend,
        drains: BackendDrains,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        every_s: float = EVERY_S,
    ) -> None:
        parts = urlsplit(backend.base_url)
        origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
        self.backend = backend
        self._client: HttpClient = connect(origin, concurrent=1, name=backend.name)
        self._headers = [(b"accept", b"text/plain"), *_key_header(backend)]
        self._drains, self._monotonic, self._every_s = drains, monotonic, every_s
        self._wanted = asyncio.Event()
        self._wanted_at = float("-inf")
        self._last: tuple[float, Reading] | None = None
        self._in_flight_then = 0
        self._rate: float | None = None
        self._full_rate: float | None = None
        self._capacity = float(backend.slots) if backend.slots is not None else None
        self._capacity_at = float("-inf")
        self._misses = self._absent = 0
        self.looks = 0

    def load(self, in_flight: int) -> Load | None:
        """The current load of the server; None if unknown. Calls that this worker began since the last scrape are added
        to the figures of the scrape. `in_flight`: the number of this worker's calls in progress. Each call of this
        method keeps the scrapes going."""
        self.want()
        return self.known(in_flight)

    def want(self) -> None:
        """Keep scraping for another `QUIET_S` seconds."""
        self._wanted_at = self._monotonic()
        if not self._wanted.is_set():
            self._wanted.set()

    def known(self, in_flight: int) -> Load | None:
        """The current load of the server; None if unknown. Does not keep the scrapes going. `in_flight`: the number of
        this worker's calls in progress."""
        if self._last is None or self._monotonic() - self._last[0] > STALE_S:
            return None
        reading = self._last[1]
        present = max(reading.running + reading.waiting + in_flight - self._in_flight_then, float(in_flight))
        capacity = self._capacity
        if capacity is None and reading.kv_used is not None and reading.kv_used > _LEAST_KV_USED and reading.running:
            # capacity = the number of requests of the present average length that would fill the KV cache
            capacity = reading.running / reading.kv_used
        begun = max(0, self._in_flight_then - in_flight)  # requests that waited and have started since
        waiting = max(min(reading.waiting - begun, present), 0.0 if capacity is None else present - capacity, 0.0)
        return Load(present - waiting, waiting, capacity, reading.kv_used, self._rate, self._full_rate)

    async def run(self, in_flight: Callable[[], int]) -> None:
        """Scrape until cancelled. `in_flight` returns the number of this worker's calls in progress at the server."""
        while True:
            if self._monotonic() - self._wanted_at > QUIET_S:
                self._wanted.clear()
                self._last = None
                await self._wanted.wait()
            try:
                await self.look(in_flight())
            except Exception:  # if scrapes stopped, an old load would be used for ever
                log.exception("the load of %s cannot be read", self.backend.name)
            most = LONGEST_PAUSE_S if self.backend.spot_notice is None else NOTICE_S
            await asyncio.sleep(min(self._every_s * 2.0**self._misses, most))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def look(self, in_flight: int) -> None:
        """Scrape once. Never raises, whatever the server sends. `in_flight`: the number of this worker's calls in
        progress."""
        self.looks += 1
        if reports_load(self.backend):
            await self._look_at_load(in_flight)
        if self.backend.spot_notice is not None:
            await self._look_for_notice(self.backend.spot_notice)

    async def _look_at_load(self, in_flight: int) -> None:
        try:
            status, body = await self._get(_PATH)
        except BackendUnreachable:
            self._unreachable()
            return
        except BackendError:
            self._misses = min(self._misses + 1, 6)
            return
        if status == _NOT_NOW:
            self._unreachable()
            return
        self._absent = 0
        reading = await asyncio.to_thread(read, body.decode("utf-8", "replace")) if status == 200 else None
        self._misses = min(self._misses + 1, 6) if reading is None else 0
        self._drains.over(self.backend.name, _GONE)
        if reading is not None:
            self._take(reading, in_flight)

    def _take(self, reading: Reading, in_flight: int) -> None:
        now = self._monotonic()
        rate = reading.tokens_per_second
        if self._last is not None and reading.written is not None and self._last[1].written is not None:
            since, grown = now - self._last[0], reading.written - self._last[1].written
            if since > 0 and grown >= 0:  # else the server was restarted
                rate = grown / since
        if rate is not None and (rate > 0 or reading.running == 0):
            self._rate = rate if self._rate is None else self._rate + (rate - self._rate) * _NEWEST
        if rate and reading.waiting > 0 and self._last is not None and self._last[1].waiting > 0:
            self._full_rate = rate if self._full_rate is None else self._full_rate + (rate - self._full_rate) * _NEWEST
        if self.backend.slots is None:
            self._learn_capacity(reading, now)
        self._last, self._in_flight_then = (now, reading), in_flight

    def _learn_capacity(self, reading: Reading, now: float) -> None:
        """Learn the capacity: how many requests the server runs at a time. It is `reading.running` if requests wait in
        two consecutive scrapes."""
        if reading.waiting > 0 and reading.running > 0 and self._last is not None and self._last[1].waiting > 0:
            self._capacity, self._capacity_at = reading.running, now
        elif self._capacity is not None and reading.running > self._capacity:
            self._capacity = reading.running
        elif now - self._capacity_at > CAPACITY_S:
            self._capacity = None

    def _unreachable(self) -> None:
        self._absent += 1
        self._misses = 1  # the server may return soon, so scrape again soon
        if self._absent >= GONE_AFTER:
            self._last = None
            self._drains.see(self.backend.name, GONE_S, _GONE)

    async def _look_for_notice(self, path: str) -> None:
        """Drain the backend if the cloud has announced that it will stop the machine. A GET of `path` returns 404
        before the announcement and 200 after it, as in AWS' `spot/instance-action`."""
        try:
            status, _ = await self._get(path)
        except BackendError:
            return
        name = self.backend.name
        drained = self._drains.reason(name)
        try:
            if status == 200 and not drained:
                await self._drains.drain(name, USUAL_S, _ENDING)
            elif status == 404 and drained.endswith(_ENDING):
                await self._drains.undrain(name)
        except StateUnavailable:
            log.warning("the notice for %s could not be shared with the other workers", name)

    async def _get(self, path: str) -> tuple[int, bytes]:
        """GET `path`; returns status and body. Raises BackendError."""
        deadline = asyncio.get_running_loop().time() + LOOK_S
        response = await self._client.request(
            "GET", path, self._headers, b"", deadline=deadline, first_byte_timeout=LOOK_S
        )
        try:
            return response.status, await response.read(MOST_BYTES)
        finally:
            await response.aclose()
