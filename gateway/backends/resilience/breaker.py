"""Health of one backend: circuit breaker, calls in progress, time to first byte."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gateway.backends.resilience.slots import ConcurrencyLimiter
from gateway.domain.protocols import BackendState
from gateway.errors import BackendRateLimited

_NEWEST = 0.2
"""Weight of the newest stream in the average time to a first byte."""


_SAMPLES, _LEAST_SAMPLES = 128, 20
"""Newest waits for a first token that are kept, and those that it takes to say how long nearly all of them are."""

SHORT_PAUSE_S = 2.0
"""A pause this short is waited for by the request that was asked to; the others need not know."""


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When a breaker opens, and for how long."""

    failures_in_a_row: int = 5
    error_share: float = 0.5
    least_calls: int = 20
    """Calls in the window before their error share says anything."""
    window_s: float = 30.0
    rest_s: float = 5.0
    """First rest; it doubles until a call succeeds."""
    longest_rest_s: float = 60.0


class Breaker:
    """Closed → (failures) → open → (rest over) → one probe → closed, or open for twice as long. No I/O."""

    def __init__(self, breaker_settings: BreakerSettings | None = None) -> None:
        self._tripping = breaker_settings or BreakerSettings()
        self._in_a_row = 0
        self._half_window = -1
        self._half_ends = 0.0
        self._calls = self._failures = 0
        self._earlier = (0, 0)
        self.open = False
        self._rest_s = self._tripping.rest_s
        self._rests_until = 0.0
        self.limited_until = 0.0
        self._probing = False

    def closed_to(self, now: float) -> str:
        """Why no call may start now; empty when one may. No need to ask while neither `open` nor `limited_until`."""
        if now < self.limited_until:
            return "rate-limited"
        self.limited_until = 0.0
        if self.open and now < self._rests_until:
            return "resting after failures"
        if self.open and self._probing:
            return "being probed"
        return ""

    def limited_for(self, now: float) -> float:
        """Seconds until the backend takes calls again, as it said itself; 0 when it said nothing."""
        return max(0.0, self.limited_until - now)

    @property
    def probing(self) -> bool:
        return self._probing

    def start(self) -> bool:
        """A call starts: `closed_to` was empty, or it is the last resort. Is it a probe?"""
        self._probing = self.open or self.limited_until > 0
        return self._probing

    def began(self) -> None:
        """A probe's first bytes are there: closed again, though the next failure would open it."""
        self.open = self._probing = False
        self.limited_until = 0.0
        self._in_a_row = self._tripping.failures_in_a_row - 1

    def succeeded(self, now: float) -> None:
        if not self.open:
            self._in_a_row = 0
            self._rest_s = self._tripping.rest_s
            if now >= self._half_ends:
                self._next_half(now)
            self._calls += 1

    def failed(self, now: float, probe: bool) -> None:
        if probe:
            self._trip(now)
        elif not self.open:  # a call that started before the breaker opened proves nothing new
            self._in_a_row += 1
            if now >= self._half_ends:
                self._next_half(now)
            self._calls += 1
            self._failures += 1
            if self._in_a_row >= self._tripping.failures_in_a_row or self._too_many():
                self._trip(now)

    def probe_left(self) -> None:
        """The probe ended without a verdict, for example because the client hung up: the next call probes."""
        self._probing = False

    def limited(self, now: float, seconds: float) -> None:
        """The backend asked for a pause; it is believed, but not for ever."""
        self.limited_until = max(self.limited_until, now + min(seconds, self._tripping.longest_rest_s))

    def _trip(self, now: float) -> None:
        self.open, self._probing = True, False
        self._rests_until = now + self._rest_s
        self._rest_s = min(self._rest_s * 2, self._tripping.longest_rest_s)
        self._calls = self._failures = 0
        self._earlier = (0, 0)

    def _next_half(self, now: float) -> None:
        """Two half windows: cheap, and old calls fade."""
        half_s = self._tripping.window_s / 2
        half = max(int(now / half_s), self._half_window + 1)  # whichever way the quotient was rounded
        self._earlier = (self._calls, self._failures) if half == self._half_window + 1 else (0, 0)
        self._calls = self._failures = 0
        self._half_window, self._half_ends = half, (half + 1) * half_s

    def _too_many(self) -> bool:
        calls = self._calls + self._earlier[0]
        failures = self._failures + self._earlier[1]
        return calls >= self._tripping.least_calls and failures >= calls * self._tripping.error_share


class Health:
    """One backend's breaker, places and averages."""

    def __init__(
        self,
        name: str,
        concurrent: int,
        *,
        monotonic: Callable[[], float],
        breaker_settings: BreakerSettings | None = None,
        queue: int = 256,
        queue_timeout_s: float = 5.0,
    ) -> None:
        self.name = name
        self.first_byte_ms: float | None = None
        self.whole_s: float | None = None
        """From a call to its whole answer, on average."""
        self._waits: deque[float] = deque(maxlen=_SAMPLES)
        self.breaker = Breaker(breaker_settings)
        self.monotonic = monotonic
        self.places = ConcurrencyLimiter(name, concurrent, queue, queue_timeout_s, monotonic)

    def state(self) -> BackendState:
        breaker = self.breaker
        reason = breaker.closed_to(self.monotonic()) if breaker.open or breaker.limited_until else ""
        return BackendState(not reason, reason, self.in_flight, self.first_byte_ms)

    @property
    def in_flight(self) -> int:
        return self.places.taken

    @property
    def slow_after_s(self) -> float | None:
        """The 95th percentile of the newest waits for a first token; None while too few are known."""
        waits = sorted(self._waits)
        return waits[-(-95 * len(waits) // 100) - 1] if len(waits) >= _LEAST_SAMPLES else None

    def waited(self, seconds: float) -> None:
        """So long for a first token, or for so long in vain."""
        self._waits.append(seconds)

    def at_once(self, share: str) -> Slot | None:
        """A place without a wait; None where there is more to it, as `enter` has it."""
        breaker = self.breaker
        if breaker.open or breaker.limited_until or not self.places.take(share):
            return None
        return Slot(self, False, share)

    async def enter(
        self, wait_s: float, share: str = "", *, batch: bool = False, last_resort: bool = False
    ) -> Slot | None:
        """A place for one call, or None while the breaker is open.

        `last_resort`: there is no other backend to ask, so one call at a time may find out ahead of time.

        Waits at most `wait_s` for one of the backend's `concurrent` places, in a queue that is fair between shares and
        serves batch last. Raises Overloaded (ShareExceeded) when none came free or too many wait, and
        BackendRateLimited while the backend has asked for a pause.
        """
        breaker = self.breaker
        if (breaker.open or breaker.limited_until) and self._barred(last_resort):
            return None
        if self.places.take(share):
            return self._start(share)
        await self.places.wait(share, batch, wait_s)
        resting = True
        try:
            resting = self._barred(last_resort)  # the wait may have been long enough for the breaker to open
        finally:
            if resting:
                self.places.give_back(share)
        return None if resting else self._start(share)

    def _start(self, share: str) -> Slot:
        breaker = self.breaker
        return Slot(self, (breaker.open or breaker.limited_until > 0) and breaker.start(), share)

    def _barred(self, last_resort: bool) -> bool:
        return self.breaker.probing if last_resort else self._resting()

    def _resting(self) -> bool:
        now = self.monotonic()
        if wait_s := self.breaker.limited_for(now):
            raise BackendRateLimited(
                f"{self.name} is rate-limited for another {wait_s:.0f} s", backend=self.name, retry_after_s=wait_s
            )
        return bool(self.breaker.closed_to(now))


class Slot:
    """One call in progress; its first verdict counts, and gives the place back."""

    __slots__ = ("_health", "_open", "_probe", "_share", "_started")

    def __init__(self, health: Health, probe: bool, share: str) -> None:
        self._health, self._probe, self._share, self._open = health, probe, share, True
        self._started = health.monotonic()

    def began(self) -> None:
        """A stream's first bytes are there. A plain answer's come after its last token, and say something else."""
        health = self._health
        if self._probe:
            self._proved()
        seconds = health.monotonic() - self._started
        health.waited(seconds)
        ms = seconds * 1000
        before = ms if health.first_byte_ms is None else health.first_byte_ms
        health.first_byte_ms = before + (ms - before) * _NEWEST

    def _proved(self) -> None:
        self._health.breaker.began()
        self._probe = False

    def succeeded(self, *, answered: bool = True) -> None:
        """The whole answer arrived, or a refusal."""
        if self._leave():
            if self._probe:
                self._proved()
            health = self._health
            now = health.monotonic()
            health.breaker.succeeded(now)
            if answered:
                took, before = now - self._started, health.whole_s
                health.whole_s = took if before is None else before + (took - before) * _NEWEST

    def failed(self) -> None:
        if self._leave():
            self._health.breaker.failed(self._health.monotonic(), self._probe)

    def limited(self, seconds: float | None) -> None:
        """The backend is alive but wants no calls for `seconds`, if it said how long."""
        self.left()
        if seconds is not None and seconds > SHORT_PAUSE_S:
            self._health.breaker.limited(self._health.monotonic(), seconds)

    def outrun(self) -> None:
        """Another backend was quicker. That it had not begun by now is remembered: else only quick ones would be."""
        if self._open:
            self._health.waited(self._health.monotonic() - self._started)
        self.left()

    def left(self) -> None:
        """No verdict: the client hung up, or nothing was asked after all."""
        if self._leave() and self._probe:
            self._health.breaker.probe_left()

    def _leave(self) -> bool:
        if not self._open:
            return False
        self._open = False
        self._health.places.give_back(self._share)
        return True
