"""One worker's view of one counter: units that are leased, units that are used, and used units that are not reported
yet."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.state.leases.lease_script import STEP_MS, WINDOW_STEPS, Reply, Status

Kind = Literal["rate", "gauge", "sum"]
"""What a counter counts. `rate`: units used in the last 60 s. `gauge`: units in use now. `sum`: all units ever settled,
plus the units in use."""

Want = tuple["Lease", int]
"""A counter, and the number of units that a request wants from it."""
Rebuild = Callable[[], Awaitable[int]]
"""A function that reads from the ledger how many units of a sum have been settled."""

LIFE_MS = 660_000
"""Milliseconds for which the server keeps a rate or gauge after its last use."""
MOST = 2**52
"""Maximum limit of a counter. A larger limit is reduced to this value, so that the server's doubles stay exact."""
MARK_MS = 10
"""Resolution, in milliseconds, of the times at which units were settled."""
_MARGIN_MARKS = 2
"""Difference between the clocks of two workers that is tolerated, in marks of 10 ms. So units that were settled up to
20 ms before a counter was rebuilt are reported again too."""
_FADE = 0.94
"""Factor by which the expected demand falls per tick. At five ticks per second, an unused lease is given back after
about ten seconds."""
_AHEAD_TICKS = 3


@dataclass(frozen=True, slots=True)
class NotEnough:
    """A counter that could not grant the requested units. `wanted`: the number of units requested."""

    lease: Lease
    wanted: int
    retry_after_s: float | None
    """Seconds until the units are available if no units are used until then. None if that depends on other workers."""

    @property
    def passing(self) -> bool:
        """Whether a new attempt may soon succeed. True if other workers hold enough unused units, or the counter is
        being rebuilt."""
        lease = self.lease
        return lease.settling or (lease.idle > 0 and lease.rest + lease.idle + max(lease.free, 0) >= self.wanted)


class Lease:
    """One counter as one worker knows it, with the units that this worker has reserved. `Leases.counter` creates
    it. Methods are synchronous.
    """

    __slots__ = (  # an instance with more than thirty attributes would need a dict for them
        *("__weakref__", "_acknowledged", "_biggest", "_demand", "_least", "_leased", "_pending", "_sent", "_seq"),
        *("_taken", "_unreported", "_window", "ahead", "busy", "free", "generation", "held", "idle", "key", "kind"),
        *("life_ms", "limit", "orphaned", "rated", "rebuild", "refused_least", "refused_until", "repair_at", "rest"),
        *("retry_at", "seen"),
        *("settled", "settling", "stale", "tag", "tight", "touched", "valid_until", "waiting", "watched", "workers"),
    )

    def __init__(
        self, tag: str, key: str, kind: Kind, limit: int, life_ms: int, rebuild: Rebuild | None, *, ahead: bool = True
    ) -> None:
        self.tag, self.key, self.kind, self.life_ms, self.rebuild = tag, key, kind, life_ms, rebuild
        self.rated = kind == "rate"
        self.ahead = ahead
        """Whether units are leased before they are needed. False for kinds of counters of which there are very many,
        because each is used rarely."""
        self.limit = min(limit, MOST)
        self.free = 0
        """Units that can be taken without a round trip. Negative if more units were settled than were held."""
        self.busy = 0
        """Units in use, by open holds or requests in progress."""
        self.rest = self.settled = self.idle = self.held = 0
        self.orphaned = 0
        """Units that have been held for dead workers for longer than `orphans.PATIENCE_S` seconds. How much of them was
        spent is unknown."""
        self.workers = 1
        self.settling = self.tight = self.stale = False
        self.seen = self.valid_until = self.refused_until = self.repair_at = float("-inf")
        self.refused_least = 0
        self.retry_at = float("-inf")
        self.waiting: list[int] = []
        """The units that waiting requests want, one entry per request."""
        self.watched = False
        """Whether `Leases` reports this counter to the server."""
        self.touched = False
        """Whether the counter has changed since the last report in a way that `_pending` does not show."""
        self.generation = ""
        self._window: dict[int, int] = {}
        """Units of a rate that were used in the last 60 s and reported, by the time at which they were used."""
        self._pending: defaultdict[int, int] = defaultdict(int)
        """Units that are not reported yet, by the time at which they were used. The time is in steps of 100 ms for a
        rate, and in marks of 10 ms for a sum."""
        self._sent: dict[int, int] = {}
        self._unreported = 0
        """Sum of all units in `_sent` and `_pending`. Only for a counter of the kind `sum`."""
        self._acknowledged = True
        self._seq = time.time_ns() // 1_000_000
        self._leased = 0
        self._least = 1
        self._taken = 0
        self._demand = 0.0
        self._biggest = 0

    # ── on the hot path ────────────────────────────────────────────────────────────────────────────────────────────

    def force(self, units: int, step: int) -> None:
        """Take `units` even if the server has not reserved them for this worker. Use this only for policies that serve
        requests while the server is unreachable. `step`: the server's clock in steps of 100 ms, for counters of the
        kind `rate`."""
        self.free += units
        take_all(((self, units),), step)

    def settle(self, held: int, cost: int, mark: int) -> None:
        """End the use of `held` units, of which `cost` units were spent. `cost` may exceed `held`. Only for counters of
        the kind `sum`. `mark`: time of the settlement in steps of 10 ms."""
        self.busy -= held
        self.free += held - cost
        self.touched = True
        if cost:
            self._pending[mark] += cost
            self._unreported += cost

    def correct(self, units: int, step: int) -> None:
        """Change the units that were used at `step` by `units`, which may be negative. Only for counters of the kind
        `rate`.
        """
        self._pending[step] += units
        if units > 0:
            self.free -= units

    def resize(self, limit: int) -> None:
        """Change the limit."""
        limit = min(limit, MOST)
        if limit != self.limit:
            self.rest += limit - self.limit
            self.limit = limit
            self.touched = True

    @property
    def remaining(self) -> int:
        """Units that all workers together can still take, as far as this worker knows."""
        units = self.rest + self.free
        return units if units > 0 else 0

    @property
    def left(self) -> int:
        """Unspent units of a counter of the kind `sum`, as far as this worker knows. Units held by dead workers count
        as spent.
        """
        return self.limit - self.settled - self._unreported - self.orphaned

    def used(self, step: int) -> int:
        """Units that this worker has used in the window of 60 s that ends at `step`. Only for counters of the kind
        `rate`.
        """
        oldest = step - WINDOW_STEPS
        return sum([units for at, units in self._used().items() if at > oldest])

    def wait_s(self, units: int, step: int) -> float | None:
        """Seconds until `units` that this worker has used leave the window of 60 s. None if it has used fewer units.
        `step`: the server's clock in steps of 100 ms.
        """
        used = self._used()
        for at in sorted(used):
            if at > step - WINDOW_STEPS:
                units -= used[at]
                if units <= 0:
                    return (at + WINDOW_STEPS - step) * STEP_MS / 1000
        return None

    def _used(self) -> dict[int, int]:
        """Used units, reported or not, by the time at which they were used. Only for counters of the kind `rate`."""
        used = dict(self._window)
        for at, units in self._pending.items():
            used[at] = max(0, used.get(at, 0) + units)
        return used

    def refuses(self, units: int, now: float) -> bool:
        """Whether the server has just refused `units` or fewer, so that another request for them is useless. `now`:
        monotonic seconds.
        """
        return now < self.refused_until and units - max(self.free, 0) >= self.refused_least

    # ── reports to the server ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def done(self) -> bool:
        """Whether this worker holds no units of the counter and has nothing to report."""
        held = self.busy or self.free > 0 or self._leased
        return not (held or self._pending or self._sent or self.waiting or self.stale)

    @property
    def needs_report(self) -> bool:
        """Whether there is something to report, or free units that other workers may need."""
        return self.touched or bool(self._pending) or not self._acknowledged or self.free > 0

    def withdraw(self) -> None:
        """Stop leasing units before they are needed, because the worker is closing."""
        self._taken = self._biggest = 0
        self._demand = 0.0

    def tick(self, step: int) -> None:
        """Lower the expected demand and move the window to `step`. Must be called once per reporting period (`period_s`
        of `Leases`)."""
        self._demand = max(float(self._taken), self._demand * _FADE)
        self._taken = 0
        if self._demand < 0.02 * self._biggest:
            self._demand, self._biggest = 0.0, 0
        if len(self._window) > WINDOW_STEPS // 2:
            oldest = step - WINDOW_STEPS
            self._window = {at: units for at, units in self._window.items() if at > oldest}
        if len(self._pending) > WINDOW_STEPS:  # the server has been unreachable for long
            self._fold(step)

    def _fold(self, step: int) -> None:
        """Limit the number of entries in `_pending` (used units that are not reported yet, by the time of use).
        `step`: the server's clock in steps of 100 ms.
        """
        if self.rated:
            self._pending = _counting({at: units for at, units in self._pending.items() if at > step - WINDOW_STEPS})
        else:
            self._pending = _counting({max(self._pending): sum(self._pending.values())})

    def report(self, base: str) -> list[str | int]:
        """The arguments of the server's script for this counter. The report offers some free units to other workers.
        This worker cannot take these units until the reply arrives.

        `base`: result of `rebuild.read_base`, or empty.
        """
        if self._acknowledged:
            if self.rated:
                self._window = self._used()
            self._sent, self._pending = self._pending, defaultdict(int)
            self._seq += 1
            self._acknowledged = False
        target = 0 if self.tight else self._target()
        spare = max(self.free, 0)
        keep = spare if self.waiting else min(spare, target)
        need = max(0, sum(self.waiting) - keep)
        self._least = max(1, min(self.waiting) - keep) if need else 1
        self.rest += spare - keep
        self.free = keep
        self.touched = False
        # A report without a reply is sent again unchanged. So units that were used since then must still be held.
        unsent = max(0, sum(self._pending.values()))
        uses = ",".join([f"{at}:{units}" for at, units in self._sent.items() if units])
        return [
            *(self.kind, self.generation, self._seq, self.limit, self.busy + unsent + keep, self.busy + unsent),
            *(need, self._least, max(0, target - keep), base, uses, self.life_ms),
        ]

    def _target(self) -> int:
        """Number of units to lease before they are needed."""
        if not self.ahead:
            return 0
        demand = max(self._demand, float(self._taken))
        return max(int(demand * _AHEAD_TICKS), 2 * self._biggest) if demand else 0

    def learn(self, reply: Reply, floor: int, now: float, lease_s: float) -> None:
        """Apply the server's reply to a report that was sent at `now` (monotonic seconds).

        `floor`: units held according to the report. `lease_s`: seconds from `now` for which the units stay
        reserved.
        """
        if reply.status is Status.UNKNOWN:
            return
        if reply.status is Status.CHANGED:
            self._start_over(reply)
            return
        self.generation = reply.generation
        self._unreported -= sum(self._sent.values())
        self._sent, self._acknowledged = {}, True
        self._leased = reply.units
        self.free += reply.units - floor
        self.rest, self.settled, self.idle, self.held = reply.rest, reply.settled, reply.idle, reply.held
        self.workers, self.tight, self.stale = reply.workers, reply.tight, reply.stale
        self.settling = reply.status is Status.SETTLING
        self.seen, self.valid_until = now, now + lease_s
        if reply.status in (Status.SHORT, Status.SETTLING):
            self.refused_least = self._least
            self.retry_at = now + reply.retry_ms / 1000 if reply.retry_ms else float("-inf")
            self.refused_until = now + STEP_MS / 1000

    def _start_over(self, reply: Reply) -> None:
        """Prepare to report units again, after the server has lost and rebuilt the counter. Units that were already
        read from the ledger are not reported again.
        """
        if self.rated:
            self._window, self._pending = {}, _counting(self._used())
        else:
            since = reply.since - _MARGIN_MARKS
            every = [*self._sent.items(), *self._pending.items()]
            self._pending = defaultdict(int)
            for at, units in every:
                if at >= since:
                    self._pending[at] += units
        self._unreported = sum(self._pending.values())
        self._sent, self._acknowledged = {}, True
        self.generation = reply.generation

    def expire(self, now: float) -> None:
        """Drop the free units if the server no longer reserves them for this worker. `now`: monotonic seconds."""
        if now >= self.valid_until:
            self.free = min(self.free, 0)


def take_all(wants: Iterable[Want], step: int) -> None:
    """Take the units in `wants`, which must be free in all counters. `step`: the server's clock in steps of 100 ms,
    for counters of the kind `rate`.
    """
    for lease, units in wants:
        lease.free -= units
        lease._taken += units
        if units > lease._biggest:
            lease._biggest = units
        if lease.rated:
            lease._pending[step] += units
        else:
            lease.busy += units
            lease.touched = True


def _counting(known: Mapping[int, int]) -> defaultdict[int, int]:
    return defaultdict(int, known)
