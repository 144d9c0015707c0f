"""One worker's view of one counter: leased, used, and not yet reported units."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.state.leases.lease_script import STEP_MS, WINDOW_STEPS, Reply, Status

Kind = Literal["rate", "gauge", "sum"]
"""rate: uses of the last 60 s · gauge: what is in use now · sum: everything ever settled, plus what is in use."""

Want = tuple["Lease", int]
Rebuild = Callable[[], Awaitable[int]]

LIFE_MS = 660_000
"""How long a rate or gauge is kept after its last use."""
MOST = 2**52
"""Larger limits mean this: the server's doubles stay exact."""
MARK_MS = 10
"""When something was settled is remembered this finely."""
_MARGIN_MARKS = 2
"""Clocks of workers agree to 20 ms: what was settled in the last moment before a rebuild is reported all the same."""
_FADE = 0.94
"""Of the demand per tick; at five ticks a second an unused lease is given back after some ten seconds."""
_AHEAD_TICKS = 3


@dataclass(frozen=True, slots=True)
class NotEnough:
    """A counter that could not give what was asked."""

    lease: Lease
    wanted: int
    retry_after_s: float | None
    """Seconds until it can be taken if nobody uses more; None if that depends on other workers."""

    @property
    def passing(self) -> bool:
        """Others hold units that they don't use, or the counter is being rebuilt: ask again in a moment."""
        lease = self.lease
        return lease.settling or (lease.idle > 0 and lease.rest + lease.idle + max(lease.free, 0) >= self.wanted)


class Lease:
    """Made by `Leases.counter`. Every method is synchronous and touches memory only."""

    __slots__ = (  # a plain instance with more than thirty attributes would look each of them up in a dict of its own
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
        """Keep units for what may come? Where a counter is one of very many, each used now and then, rather not."""
        self.limit = min(limit, MOST)
        self.free = 0
        """May be taken without asking; below zero when more was settled than held."""
        self.busy = 0
        """In use: open holds, requests in progress."""
        self.rest = self.settled = self.idle = self.held = 0
        self.orphaned = 0
        """Units held for workers that died long ago and whose spend is unknown."""
        self.workers = 1
        self.settling = self.tight = self.stale = False
        self.seen = self.valid_until = self.refused_until = self.repair_at = float("-inf")
        self.refused_least = 0
        self.retry_at = float("-inf")
        self.waiting: list[int] = []
        """What requests wait for, one entry each."""
        self.watched = False
        """Is it among those that are reported?"""
        self.touched = False
        """Since the last report, in a way that `_pending` does not tell."""
        self.generation = ""
        self._window: defaultdict[int, int] = defaultdict(int)
        self._pending: defaultdict[int, int] = defaultdict(int)
        """Not reported yet: uses by step for a rate, costs by mark for a sum."""
        self._sent: dict[int, int] = {}
        self._unreported = 0
        """Of a sum: what `_sent` and `_pending` hold."""
        self._acknowledged = True
        self._seq = time.time_ns() // 1_000_000
        self._leased = 0
        self._least = 1
        self._taken = 0
        self._demand = 0.0
        self._biggest = 0

    # ── on the hot path ────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, units: int, step: int) -> None:
        """Use `units`, which must be `free`. Only a rate asks when."""
        take_all(((self, units),), step)

    def force(self, units: int, step: int) -> None:
        """Use `units` that were not granted: the server is unreachable and the rule is to go on."""
        self.free += units
        self.take(units, step)

    def give(self, units: int) -> None:
        """Units of a gauge or sum are no longer in use, and nothing was settled."""
        self.busy -= units
        self.free += units
        self.touched = True

    def settle(self, held: int, cost: int, mark: int) -> None:
        """`held` units of a sum are no longer in use; `cost` of them, or more, were spent just now (`mark`)."""
        self.busy -= held
        self.free += held - cost
        self.touched = True
        if cost:
            self._pending[mark] += cost
            self._unreported += cost

    def correct(self, units: int, step: int) -> None:
        """A rate's use at `step` was `units` more (or, below zero, less) than was taken then."""
        self._pending[step] += units
        if units > 0:
            self._window[step] += units
            self.free -= units
        else:
            self._window[step] = max(0, self._window[step] + units)

    def resize(self, limit: int) -> None:
        limit = min(limit, MOST)
        if limit != self.limit:
            self.rest += limit - self.limit
            self.limit = limit
            self.touched = True

    @property
    def remaining(self) -> int:
        """What this worker believes that everyone together may still use."""
        units = self.rest + self.free
        return units if units > 0 else 0

    @property
    def left(self) -> int:
        """Units of a sum that are not spent, as far as this worker knows. Holds of living workers are not spent; those
        of dead workers count as spent."""
        return self.limit - self.settled - self._unreported - self.orphaned

    def used(self, step: int) -> int:
        """This worker's own uses of a rate within the window."""
        oldest = step - WINDOW_STEPS
        return sum([units for at, units in self._window.items() if at > oldest])

    def wait_s(self, units: int, step: int) -> float | None:
        """Seconds until `units` of this worker's own uses have left the window; None when there are not so many."""
        for at in sorted(self._window):
            if at > step - WINDOW_STEPS:
                units -= self._window[at]
                if units <= 0:
                    return (at + WINDOW_STEPS - step) * STEP_MS / 1000
        return None

    def refuses(self, units: int, now: float) -> bool:
        """Was as much refused a moment ago? Then there is no need to ask again."""
        return now < self.refused_until and units - max(self.free, 0) >= self.refused_least

    # ── talking to the server ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def done(self) -> bool:
        """Nothing held here and nothing to say."""
        held = self.busy or self.free > 0 or self._leased
        return not (held or self._pending or self._sent or self.waiting or self.stale)

    @property
    def restless(self) -> bool:
        """Is there anything to report, or something idle that others might be short of?"""
        return self.touched or bool(self._pending) or not self._acknowledged or self.free > 0

    def withdraw(self) -> None:
        """The worker is closing: keep nothing ahead."""
        self._taken = self._biggest = 0
        self._demand = 0.0

    def tick(self, step: int) -> None:
        """A period has passed: demand fades, the window slides."""
        self._demand = max(float(self._taken), self._demand * _FADE)
        self._taken = 0
        if self._demand < 0.02 * self._biggest:
            self._demand, self._biggest = 0.0, 0
        if len(self._window) > WINDOW_STEPS // 2:
            oldest = step - WINDOW_STEPS
            self._window = _counting({at: units for at, units in self._window.items() if at > oldest})
        if len(self._pending) > WINDOW_STEPS:  # the server has been away for long
            self._fold(step)

    def _fold(self, step: int) -> None:
        if self.rated:
            self._pending = _counting({at: units for at, units in self._pending.items() if at > step - WINDOW_STEPS})
        else:
            self._pending = _counting({max(self._pending): sum(self._pending.values())})

    def report(self, base: str) -> list[str | int]:
        """The arguments of one counter. From here until the reply only what is kept may be taken."""
        if self._acknowledged:
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
        # After a report that was never answered the same one goes out again; what was used since then is still held.
        unsent = max(0, sum(self._pending.values()))
        uses = ",".join([f"{at}:{units}" for at, units in self._sent.items() if units])
        return [
            *(self.kind, self.generation, self._seq, self.limit, self.busy + unsent + keep, self.busy + unsent),
            *(need, self._least, max(0, target - keep), base, uses, self.life_ms),
        ]

    def _target(self) -> int:
        if not self.ahead:
            return 0
        demand = max(self._demand, float(self._taken))
        return max(int(demand * _AHEAD_TICKS), 2 * self._biggest) if demand else 0

    def learn(self, reply: Reply, floor: int, now: float, lease_s: float) -> None:
        """Apply the server's `reply` to a report with the floor `floor`, sent at `now` (monotonic seconds)."""
        if reply.status is Status.UNKNOWN:
            return
        if reply.status is Status.CHANGED:
            self._begin_anew(reply)
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

    def _begin_anew(self, reply: Reply) -> None:
        """The counter was made anew: what its base holds must not be reported again."""
        if self.rated:
            self._pending = _counting(self._window)
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
        """Drop the lease: the server gives it to other workers after this long without a report."""
        if now >= self.valid_until:
            self.free = min(self.free, 0)


def take_all(wants: Sequence[Want], step: int) -> None:
    """`Lease.take` for all counters of a request, without a call for each."""
    for lease, units in wants:
        lease.free -= units
        lease._taken += units
        if units > lease._biggest:
            lease._biggest = units
        if lease.rated:
            lease._pending[step] += units
            lease._window[step] += units
        else:
            lease.busy += units
            lease.touched = True


def _counting(known: Mapping[int, int]) -> defaultdict[int, int]:
    return defaultdict(int, known)
