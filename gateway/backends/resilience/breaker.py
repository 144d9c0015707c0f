"""The health of one backend: circuit breaker, calls in progress, time to first byte."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gateway.backends.resilience.headroom import Headroom
from gateway.backends.resilience.slots import ConcurrencyLimiter
from gateway.domain.protocols import BackendState
from gateway.errors import BackendError, BackendRateLimited, BackendUnreachable

log = logging.getLogger(__name__)

_NEWEST = 0.2
"""Weight of the newest sample in two moving averages: the time to the first byte, and the time of the whole answer."""


_SAMPLES, _LEAST_SAMPLES = 128, 20
"""Maximum number of stored waits for a first token, and minimum number of waits for computing the 95th percentile."""

SHORT_PAUSE_S = 2.0
"""Maximum seconds of a short pause. A request waits for the end of a short pause if no other backend can serve it."""
_LATELY_S = 60.0
_DEAD_S = 10.0
"""Seconds after which a backend that refuses connections counts as dead. A server that restarts also refuses them."""
_GUESSED_S = 0.5
"""Seconds of the first pause after a 429 without `retry-after`. The pause doubles with each further such 429, up to
`SHORT_PAUSE_S`, until a call succeeds."""


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """The conditions under which a breaker opens, and how long it stays open."""

    failures_in_a_row: int = 5
    error_share: float = 0.5
    least_calls: int = 20
    """Minimum number of calls in the window. With fewer calls, the share of errors is not checked."""
    window_s: float = 30.0
    rest_s: float = 5.0
    """Seconds for which the breaker stays open the first time. The time doubles each time the breaker opens, until a
    call succeeds."""
    longest_rest_s: float = 60.0


class Breaker:
    """A circuit breaker. After too many failures it opens: it blocks calls for a time. Then one call, the probe,
    may start.

    If the probe fails, the breaker blocks calls for twice the time; otherwise it closes. No I/O. Times are
    monotonic seconds.
    """

    def __init__(self, breaker_settings: BreakerSettings | None = None) -> None:
        self._settings = breaker_settings or BreakerSettings()
        self._in_a_row = 0
        self._half_window = -1
        self._half_ends = 0.0
        self._calls = self._failures = 0
        self._earlier = (0, 0)
        self.open = False
        self._open_s = self._settings.rest_s
        self._open_until = self._opened_at = 0.0
        self.limited_until = 0.0
        self.guess_s, self.guessed_at = _GUESSED_S, 0.0
        """Seconds of the next guessed pause, and the time at which the last one began."""
        self._probing = False

    def blocked_reason(self, now: float) -> str:
        """The reason why no call may start now; empty if a call may start. Callers need to check this only if `open` or
        `limited_until` is set."""
        if now < self.limited_until:
            return "rate-limited"
        self.limited_until = 0.0
        if self.open and now < self._open_until:
            return "unavailable after failures"
        if self.open and self._probing:
            return "being probed"
        return ""

    def limited_for(self, now: float) -> float:
        """Remaining seconds of the pause that the backend has asked for; 0 if it has asked for none."""
        return max(0.0, self.limited_until - now)

    @property
    def probing(self) -> bool:
        """Whether a probe is in progress."""
        return self._probing

    def start(self) -> bool:
        """Register the start of a call. Returns whether the call is a probe. A call is a probe if the breaker is open
        or the backend has asked for a pause."""
        self._probing = self.open or self.limited_until > 0
        return self._probing

    def began(self) -> None:
        """Close the breaker, because a probe has received its first bytes. The next failure opens the breaker again."""
        self.open = self._probing = False
        self.limited_until = 0.0
        self._in_a_row = self._settings.failures_in_a_row - 1

    def succeeded(self, now: float) -> None:
        """Count a successful call. `now`: monotonic seconds."""
        if not self.open:
            self._in_a_row = 0
            self._open_s = self._settings.rest_s
            if now >= self._half_ends:
                self._next_half(now)
            self._calls += 1

    def failed(self, now: float, probe: bool) -> None:
        """Count a failed call. Open the breaker if there were too many failures, or if the call was a probe."""
        if probe:
            self._trip(now)
        elif not self.open:  # a call that started before the breaker opened gives no new information
            self._in_a_row += 1
            if now >= self._half_ends:
                self._next_half(now)
            self._calls += 1
            self._failures += 1
            if self._in_a_row >= self._settings.failures_in_a_row or self._too_many():
                self._trip(now)

    def probe_left(self) -> None:
        """Called when a probe has ended without success or failure, for example because the client disconnected. The
        next call becomes a probe."""
        self._probing = False

    def limited(self, now: float, seconds: float) -> None:
        """Block calls for `seconds`, because the backend has asked for this pause. The breaker's `longest_rest_s`
        limits the pause."""
        self.limited_until = max(self.limited_until, now + min(seconds, self._settings.longest_rest_s))

    def guess_pause(self, now: float) -> None:
        """Block calls for a short time, because the backend has answered 429 without a duration. If a pause is in
        progress, nothing changes: the refused call began before the pause."""
        if now >= self.limited_until:
            self.limited(now, self.guess_s)
            self.guess_s, self.guessed_at = min(self.guess_s * 2, SHORT_PAUSE_S), now

    def dead(self, now: float) -> bool:
        """Whether the breaker opened more than `_DEAD_S` seconds ago and no call has succeeded since."""
        return self.open and now - self._opened_at >= _DEAD_S

    def _trip(self, now: float) -> None:
        if not self.open:
            self._opened_at = now
        self.open, self._probing = True, False
        self._open_until = now + self._open_s
        self._open_s = min(self._open_s * 2, self._settings.longest_rest_s)
        self._calls = self._failures = 0
        self._earlier = (0, 0)

    def _next_half(self, now: float) -> None:
        """Start the next half of the window. A window of two halves approximates a sliding window at low cost."""
        half_s = self._settings.window_s / 2
        half = max(int(now / half_s), self._half_window + 1)  # max() corrects rounding errors of the division
        self._earlier = (self._calls, self._failures) if half == self._half_window + 1 else (0, 0)
        self._calls = self._failures = 0
        self._half_window, self._half_ends = half, (half + 1) * half_s

    def _too_many(self) -> bool:
        calls = self._calls + self._earlier[0]
        failures = self._failures + self._earlier[1]
        return calls >= self._settings.least_calls and failures >= calls * self._settings.error_share


class Health:
    """The circuit breaker, concurrency slots and timing averages of one backend."""

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
        self.answered_at = float("-inf")
        """Monotonic time of the last complete answer."""
        self.measured_at = 0.0
        """Monotonic time of the last measurement of `first_byte_ms`."""
        self.whole_s: float | None = None
        """Moving average of the seconds from the start of a call to its complete answer; None before the first complete
        answer."""
        self._waits: deque[float] = deque(maxlen=_SAMPLES)
        self.trouble = ""
        """The reason why calls fail, from the last failure. Set while the breaker is open, or if only the operator can
        solve the problem."""
        self.needs_operator = False
        """Whether only the operator can solve the problem in `trouble`."""
        self.breaker = Breaker(breaker_settings)
        self.monotonic = monotonic
        self.headroom = Headroom()
        self.limiter = ConcurrencyLimiter(name, concurrent, queue, queue_timeout_s, monotonic)

    def state(self) -> BackendState:
        """Whether a call may start now, and this worker's figures for the backend."""
        breaker = self.breaker
        reason = breaker.blocked_reason(self.monotonic()) if breaker.open or breaker.limited_until else ""
        now = self.monotonic()
        headroom = self.headroom.share(now, self.in_flight)
        return BackendState(
            not reason,
            reason,
            self.in_flight,
            self.first_byte_ms,
            now - self.measured_at,
            headroom=headroom,
            limited=breaker.limited_until > now,
            trouble=self.trouble,
        )

    @property
    def in_flight(self) -> int:
        """The number of this worker's calls in progress."""
        return self.limiter.taken

    @property
    def slow_after_s(self) -> float | None:
        """The 95th percentile of recent waits for a first token, in seconds; None if too few waits were recorded."""
        waits = sorted(self._waits)
        return waits[-(-95 * len(waits) // 100) - 1] if len(waits) >= _LEAST_SAMPLES else None

    @property
    def pause_s(self) -> float:
        """Remaining seconds of a pause after a 429; 0 if there is none."""
        return self.breaker.limited_for(self.monotonic())

    @property
    def answered_lately(self) -> bool:
        """Whether the backend has answered a request in the last minute."""
        return self.monotonic() - self.answered_at < _LATELY_S

    def guess_pause(self) -> None:
        """Pause the backend for a short time, because it has answered 429 without a duration."""
        self.breaker.guess_pause(self.monotonic())

    def note_failure(self, error: BackendError) -> None:
        """Store the reason of a failure if the breaker is open, or if only the operator can help. A backend that has
        refused connections for a long time also needs the operator.

        Only the first such failure is logged. The reason is shown to other teams, so it has no text of the backend.
        """
        if isinstance(error, BackendUnreachable) and error.refused and self.breaker.dead(self.monotonic()):
            error.of_operator()
        if not self.breaker.open and not error.needs_operator:
            return
        reason = error.summary or error.message
        if not self.trouble:
            log.error("backend %s does not answer: %s", self.name, reason)
        self.trouble, self.needs_operator = reason, error.needs_operator

    def note_success(self) -> None:
        """Delete the stored reason for failures, because a call succeeded."""
        if self.trouble:
            log.info("backend %s answers again", self.name)
            self.trouble, self.needs_operator = "", False

    def waited(self, seconds: float) -> None:
        """Record a wait for a first token in seconds, also if the token did not arrive."""
        self._waits.append(seconds)

    def try_enter(self, share: str) -> Slot | None:
        """Take a slot without waiting. `share`: the team for which the slot is counted.

        Returns None if no slot is free or the breaker is not closed. Then call `enter`.
        """
        breaker = self.breaker
        if breaker.open or breaker.limited_until or not self.limiter.take(share):
            return None
        return Slot(self, False, share)

    async def enter(
        self, wait_s: float, share: str = "", *, batch: bool = False, last_resort: bool = False
    ) -> Slot | None:
        """Take a slot for one call. Returns None while the breaker is open.

        `wait_s`: maximum seconds in the queue. `share`: the team for which the slot is counted. `batch`: whether
        this is a batch request, so that interactive ones come first. `last_resort`: whether one probe may start
        although the breaker is open or a pause has not ended.

        Raises Overloaded or ShareExceeded if the queue is too long or too slow. Raises BackendRateLimited during a
        pause.
        """
        breaker = self.breaker
        if (breaker.open or breaker.limited_until) and self._blocked(last_resort):
            return None
        if self.limiter.take(share):
            return self._start(share)
        await self.limiter.wait(share, batch, wait_s)
        blocked = True
        try:
            blocked = self._blocked(last_resort)  # the breaker may have opened during the wait
        finally:
            if blocked:
                self.limiter.release(share)
        return None if blocked else self._start(share)

    def _start(self, share: str) -> Slot:
        breaker = self.breaker
        return Slot(self, (breaker.open or breaker.limited_until > 0) and breaker.start(), share)

    def _blocked(self, last_resort: bool) -> bool:
        return self.breaker.probing if last_resort else self._cannot_start()

    def _cannot_start(self) -> bool:
        now = self.monotonic()
        if wait_s := self.breaker.limited_for(now):
            raise BackendRateLimited(
                f"{self.name} is rate-limited for another {wait_s:.0f} s", backend=self.name, retry_after_s=wait_s
            )
        return bool(self.breaker.blocked_reason(now))


class Slot:
    """The slot of one call in progress. The first reported result releases the slot; later results are ignored."""

    __slots__ = ("_health", "_open", "_probe", "_share", "_started")

    def __init__(self, health: Health, probe: bool, share: str) -> None:
        self._health, self._probe, self._share, self._open = health, probe, share, True
        self._started = health.monotonic()

    def began(self) -> None:
        """Called when a stream's first bytes have arrived. Not called for plain answers, because their first byte
        arrives only after the last token was generated."""
        health = self._health
        if self._probe:
            self._close_breaker()
        seconds = health.monotonic() - self._started
        health.waited(seconds)
        ms = seconds * 1000
        before = ms if health.first_byte_ms is None else health.first_byte_ms
        health.first_byte_ms = before + (ms - before) * _NEWEST
        health.measured_at = self._started + seconds

    def _close_breaker(self) -> None:
        self._health.breaker.began()
        self._health.note_success()
        self._probe = False

    def succeeded(self, *, answered: bool = True) -> None:
        """Report success: the whole answer has arrived. `answered` false: the backend has refused the request, which
        shows that the backend works."""
        if self._free():
            if self._probe:
                self._close_breaker()
            health = self._health
            now = health.monotonic()
            breaker = health.breaker
            breaker.succeeded(now)
            if breaker.guess_s > _GUESSED_S and self._started > breaker.guessed_at:
                breaker.guess_s = _GUESSED_S
            if health.trouble:
                health.note_success()
            if answered:
                health.answered_at = now
                took, before = now - self._started, health.whole_s
                health.whole_s = took if before is None else before + (took - before) * _NEWEST

    def failed(self, error: BackendError | None = None) -> None:
        """Report that the call failed and that the backend is the cause."""
        if self._free():
            self._health.breaker.failed(self._health.monotonic(), self._probe)
            if error is not None:
                self._health.note_failure(error)

    def limited(self, seconds: float | None) -> None:
        """Report that the backend works, but has asked for a pause of `seconds`; None: no duration was stated."""
        self.left()
        if seconds is not None:
            self._health.breaker.limited(self._health.monotonic(), seconds)

    def lost_race(self) -> None:
        """Report that another backend answered first. The time waited so far is recorded, because otherwise the
        recorded times would be those of fast calls only.
        """
        if self._open:
            self._health.waited(self._health.monotonic() - self._started)
        self.left()

    def left(self) -> None:
        """Report that the call has ended without success or failure: the client disconnected, or no call was made."""
        if self._free() and self._probe:
            self._health.breaker.probe_left()

    def _free(self) -> bool:
        if not self._open:
            return False
        self._open = False
        self._health.limiter.release(self._share)
        return True
