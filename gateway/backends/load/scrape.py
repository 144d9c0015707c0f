"""Scrapes a server's `/metrics` in the background while its load is asked for.

Only the configured address is asked: its scheme, host and port, redirects not followed.
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
"""A server that takes longer is too busy to ask."""
STALE_S = 5.0
"""What was read longer ago says nothing about now."""
QUIET_S = 30.0
"""So long after anybody last wanted to know, nobody looks."""
CAPACITY_S = 120.0
"""So long after a server last had more than it could take, what it can take is an open question again: else nobody
would find out that it is more than was believed."""
LONGEST_PAUSE_S = 60.0
"""Between looks at a server that does not tell; the pause doubles up to this."""
NOTICE_S = 5.0
"""The same where a spot machine's end is looked for: it comes two minutes ahead at AWS, half a minute elsewhere."""
GONE_AFTER = 2
"""Looks in a row that found nobody there, or a 503."""
GONE_S = 10.0
"""A server that is gone gets no requests for so long, unless a look finds it again earlier."""
MOST_BYTES = 2 * 2**20
_PATH = "/metrics"
_NOT_NOW = 503
"""llama.cpp's while it loads its model; gateways' and balancers' for a server that is gone."""
_GONE = "its server is not there"
_TOLD = "its machine was told to end"
_TELLING_KV = 0.05
"""Of a server's memory in use; less says little about how much there is room for."""
_NEWEST = 0.3
"""Weight of the newest look in the mean tokens per second."""


def watched(backend: Backend) -> bool:
    """Is there a server behind it that is worth looking at?"""
    reachable = backend.base_url.startswith(("http://", "https://"))
    return reachable and (tells_load(backend) or backend.spot_notice is not None)


def tells_load(backend: Backend) -> bool:
    """Is it a server of one's own, that may be asked how busy it is?"""
    own = (backend.facts.own_machine and not backend.simulated) or (
        backend.price is not None and bool(backend.price.machine_hour_usd)
    )
    return own if backend.metrics is None else backend.metrics


class Scrape:
    """One server. `load` is what is known of it now; asking for it, or being used, is what keeps the looks coming."""

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
        key = backend.api_key.get_secret_value() if backend.api_key else ""
        self._headers = [(b"accept", b"text/plain"), *([(b"authorization", b"Bearer " + key.encode())] if key else [])]
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
        """None while it is not known. `in_flight`: this worker's calls there; those that began or ended since the last
        look are taken into account."""
        self.want()
        return self.known(in_flight)

    def want(self) -> None:
        """Somebody is interested."""
        self._wanted_at = self._monotonic()
        if not self._wanted.is_set():
            self._wanted.set()

    def known(self, in_flight: int) -> Load | None:
        """As `load`, for whoever is only curious."""
        if self._last is None or self._monotonic() - self._last[0] > STALE_S:
            return None
        reading = self._last[1]
        present = max(reading.running + reading.waiting + in_flight - self._in_flight_then, float(in_flight))
        capacity = self._capacity
        if capacity is None and reading.kv_used is not None and reading.kv_used > _TELLING_KV and reading.running:
            capacity = reading.running / reading.kv_used  # so many requests of this length would fill its memory
        begun = max(0, self._in_flight_then - in_flight)  # as many as ended
        waiting = max(min(reading.waiting - begun, present), 0.0 if capacity is None else present - capacity, 0.0)
        return Load(present - waiting, waiting, capacity, reading.kv_used, self._rate, self._full_rate)

    async def run(self, in_flight: Callable[[], int]) -> None:
        """For ever."""
        while True:
            if self._monotonic() - self._wanted_at > QUIET_S:
                self._wanted.clear()
                self._last = None
                await self._wanted.wait()
            try:
                await self.look(in_flight())
            except Exception:  # without looks a busy server would seem to be what it last was, for ever
                log.exception("the load of %s cannot be told", self.backend.name)
            most = LONGEST_PAUSE_S if self.backend.spot_notice is None else NOTICE_S
            await asyncio.sleep(min(self._every_s * 2.0**self._misses, most))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def look(self, in_flight: int) -> None:
        """Once. Raises nothing that a server can cause."""
        self.looks += 1
        if tells_load(self.backend):
            await self._look_at_load(in_flight)
        if self.backend.spot_notice is not None:
            await self._look_for_notice(self.backend.spot_notice)

    async def _look_at_load(self, in_flight: int) -> None:
        try:
            status, body = await self._get(_PATH)
        except BackendUnreachable:
            self._nobody_there()
            return
        except BackendError:
            self._misses = min(self._misses + 1, 6)
            return
        if status == _NOT_NOW:
            self._nobody_there()
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
            if since > 0 and grown >= 0:  # else it was started again
                rate = grown / since
        if rate is not None and (rate > 0 or reading.running == 0):
            self._rate = rate if self._rate is None else self._rate + (rate - self._rate) * _NEWEST
        if rate and reading.waiting > 0 and self._last is not None and self._last[1].waiting > 0:
            self._full_rate = rate if self._full_rate is None else self._full_rate + (rate - self._full_rate) * _NEWEST
        if self.backend.slots is None:
            self._learn_capacity(reading, now)
        self._last, self._in_flight_then = (now, reading), in_flight

    def _learn_capacity(self, reading: Reading, now: float) -> None:
        """It works on no more than `running` where others wait, look after look: one alone may be about to begin."""
        if reading.waiting > 0 and reading.running > 0 and self._last is not None and self._last[1].waiting > 0:
            self._capacity, self._capacity_at = reading.running, now
        elif self._capacity is not None and reading.running > self._capacity:
            self._capacity = reading.running
        elif now - self._capacity_at > CAPACITY_S:
            self._capacity = None

    def _nobody_there(self) -> None:
        self._absent += 1
        self._misses = 1  # it may be back soon
        if self._absent >= GONE_AFTER:
            self._last = None
            self._drains.see(self.backend.name, GONE_S, _GONE)

    async def _look_for_notice(self, path: str) -> None:
        """404 until the end of the machine is announced, as AWS' `spot/instance-action` does; 200 from then on."""
        try:
            status, _ = await self._get(path)
        except BackendError:
            return
        name = self.backend.name
        drained = self._drains.reason(name)
        try:
            if status == 200 and not drained:
                await self._drains.drain(name, USUAL_S, _TOLD)
            elif status == 404 and drained.endswith(_TOLD):
                await self._drains.undrain(name)
        except StateUnavailable:
            log.warning("the notice for %s could not be told to the other workers", name)

    async def _get(self, path: str) -> tuple[int, bytes]:
        """Raises BackendError."""
        deadline = asyncio.get_running_loop().time() + LOOK_S
        response = await self._client.request(
            "GET", path, self._headers, b"", deadline=deadline, first_byte_timeout=LOOK_S
        )
        try:
            return response.status, await response.read(MOST_BYTES)
        finally:
            await response.aclose()
