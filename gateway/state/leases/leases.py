"""Counters that all workers share. Each worker leases units before it needs them, so that requests need no round trip.

`lease_script.py` is the server's side, and `counter.py` is one counter as one worker knows it. The units held by all
workers plus the settled units never exceed a limit, so limits are exact. Far from the limit, taking units only uses
memory. Near the limit, units are leased only when they are needed, and taking units costs one round trip. Reports are
numbered, so that a report that is repeated after a timeout counts once. A worker that has not reported for `ttl_s`
seconds, or whose process has ended, loses its lease. Money in that lease stays held until the worker's journal is in
the ledger and the sum has been rebuilt, because only the journal contains its spend.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from weakref import WeakValueDictionary

from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.leases.counter import LIFE_MS, MARK_MS, Kind, Lease, NotEnough, Rebuild, Want, take_all
from gateway.state.leases.lease_script import STEP_MS, SYNC, Status, parse
from gateway.state.leases.orphans import AllDrained, DeadWorkers
from gateway.state.leases.worker_names import DeadHolders, own_name
from gateway.state.rebuild import read_base
from gateway.state.redis.connection import State

log = logging.getLogger(__name__)

_MOST_COUNTERS = 48
"""Maximum number of counters in one call."""
_MANY_CALLS = 64
"""Maximum number of concurrent calls for counters with `ahead` False, of which there are very many. So other counters
never wait for thousands of calls."""
_MOST_CALLS = 5
"""Maximum number of calls until the server has granted or refused the units of each counter. Calls are needed to create
a counter, to repeat a report after the counter has changed, and to repair it; one call is spare."""
_QUIET_S = 1.0
"""Seconds after which an unchanged lease is reported again."""
_SELDOM_S = 4.0
"""Seconds after which an unchanged lease of a counter with `ahead` False is reported again."""
_LOSS_S = 2.0
"""After the server has lost its data, a newly created sum grants nothing for this number of seconds."""
_REBUILD_S = 5.0
"""Seconds between attempts to rebuild a sum."""
_READS = 8
_RECORD_FRESH_S = 1.0
"""Maximum age, in seconds, of the data about drained workers and about holds of other workers. Older data are read
again before a sum is rebuilt."""
_CLOCK_S = 10.0
"""Seconds after which the server's clock is read again, because clocks drift."""
_STEPS_A_SECOND = 1000 // STEP_MS
_MARKS_A_SECOND = 1000 // MARK_MS


class _Group:
    """The counters with one tag. One call can report all of them."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.lock = asyncio.Lock()
        self.active: dict[Lease, None] = {}
        self.rounds = 0
        self.last = float("-inf")
        self.quiet_s = _QUIET_S


class Leases:
    """The counters of one package in one worker. Each round trip has the deadline of `State`'s calls."""

    def __init__(
        self,
        state: State,
        *,
        workers: int = 1,
        period_s: float = 0.2,
        ttl_s: float = 15.0,
        worker: str | None = None,
        dead: DeadWorkers | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`workers`: minimum number of workers that share a limit. `period_s`: seconds between reports. `ttl_s`:
        seconds for which units stay reserved without a report.

        `worker`: this worker's name; None: a new one. `dead`: tells for which dead workers the spend is in the
        ledger; None: for all.
        """
        self._state, self._monotonic = state, monotonic
        self._dead: DeadWorkers = dead or AllDrained()
        self.workers = workers
        """Minimum number of workers that share a limit. Used while the server is unreachable."""
        self._period_s, self._ttl_s = period_s, ttl_s
        self._worker, self._dead_holders = worker or own_name(), DeadHolders(ttl_s)
        self._ahead_s = time.time() - monotonic()
        """Estimated Unix time of the server's clock minus the monotonic time of this process, in seconds."""
        self.taken_at = 0
        """The server's clock in steps of 100 ms, at the time of the last `try_take` or `force`."""
        self._quickest_s, self._clock_set_at = float("inf"), float("-inf")
        self._groups: dict[str, _Group] = {}
        self._known: WeakValueDictionary[str, Lease] = WeakValueDictionary()
        self._report_now = asyncio.Event()
        """Set to start the next round at once, because other workers may wait for units that are free now."""
        self._many_calls = asyncio.Semaphore(_MANY_CALLS)
        self._tasks = Tasks()
        self._epoch = ""
        self._lost_at = float("-inf")
        self._counts = {"rounds": 0, "failed": 0, "short": 0, "rebuilt": 0}
        self.away: set[str] = set()
        """Tags whose last report had no reply. Requests for counters with these tags get only units that are leased
        already."""

    async def open(self) -> None:
        self._epoch = self._state.epoch
        self._state.on_epoch(self._new_epoch)
        self._tasks.spawn(self._run(), "leases")
        self._tasks.spawn(self._dead.run(), "dead workers")

    async def aclose(self) -> None:
        """Return unused units, and report used ones."""
        await self._tasks.aclose()
        for group in self._groups.values():
            for lease in group.active:
                lease.withdraw()
        await self._sync(self._groups.values())

    def stats(self) -> dict[str, int | float | str]:
        leases = [lease for group in self._groups.values() for lease in group.active]
        return {
            **self._counts,
            "leases": len(leases),
            "in_use": sum(1 for lease in leases if lease.busy),
            **self._dead.stats(),
        }

    def counter(
        self,
        tag: str,
        *name: str,
        kind: Kind,
        limit: int,
        life_ms: int = LIFE_MS,
        rebuild: Rebuild | None = None,
        ahead: bool = True,
    ) -> Lease:
        """The counter with this name. While the counter is in use, every call returns the same object. `limit` may
        change.

        `rebuild`: reads the starting value from the ledger; counters of the kind `sum` need it. `ahead`: whether
        units are reserved before they are needed.
        """
        key = self._state.key("lease", *name, tag=tag)
        lease = self._known.get(key)
        if lease is None:
            lease = self._known[key] = Lease(tag, key, kind, limit, life_ms, rebuild, ahead=ahead)
        lease.resize(limit)
        return lease

    @property
    def now(self) -> float:
        """The present time in monotonic seconds, by the same clock as `Lease.seen`."""
        return self._monotonic()

    @property
    def step(self) -> int:
        """The server's clock in steps of 100 ms (an estimate)."""
        return self._clock(_STEPS_A_SECOND)

    def _clock(self, ticks_a_second: int) -> int:
        return int((self._monotonic() + self._ahead_s) * ticks_a_second)

    # ── using ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def try_take(self, wants: Sequence[Want]) -> bool:
        """Take all units in `wants`, if this worker has reserved enough, without a round trip. Returns False if too few
        are reserved; then nothing was taken."""
        for lease, units in wants:
            if lease.free < units:
                return False
        self.taken_at = step = self._clock(_STEPS_A_SECOND)
        take_all(wants, step)
        return True

    def try_hold(self, leases: Sequence[Lease], units: int) -> bool:
        """Take `units` of each counter in `leases`, if this worker has reserved enough. The counters are of the kind
        `sum`. Returns False if too few are reserved; then nothing was taken.
        """
        for lease in leases:
            if lease.free < units:
                return False
        take_all(zip(leases, repeat(units)), 0)
        return True

    async def take(self, wants: Sequence[Want]) -> NotEnough | None:
        """Take all units in `wants`. Returns None, or a counter with too few units; then nothing was taken. Raises
        StateUnavailable.

        All counters must have the same tag, so that one server of a cluster has them.
        """
        if self.try_take(wants):
            return None
        for again in (True, True, False):
            short = await self._ask(wants)
            if short is None or not (again and short.passing):
                break
            await asyncio.sleep(self._period_s * 1.2)  # by then, other workers have given back unused units
        self._counts["short"] += short is not None
        return short

    async def ask(self, wants: Sequence[Want]) -> NotEnough | None:
        """Take all units in `wants` with at most one round trip. Returns None, or a counter with too few units; then
        nothing was taken. Raises StateUnavailable.
        """
        return None if self.try_take(wants) else await self._ask(wants)

    def give(self, leases: Sequence[Lease], units: int) -> None:
        """Return `units` to each counter in `leases`. The counters are of the kind `gauge` or `sum`."""
        for lease in leases:
            lease.busy -= units
            lease.free += units
            lease.touched = True
            if lease.tight:
                self._report_now.set()

    def settle(self, leases: Sequence[Lease], held: int, cost: int) -> None:
        """End the use of `held` units and record `cost` units as spent, for each counter in `leases`. The counters are
        of the kind `sum`.
        """
        mark = self._clock(_MARKS_A_SECOND)
        for lease in leases:
            lease.settle(held, cost, mark)
            if lease.tight:
                self._report_now.set()

    def force(self, lease: Lease, units: int) -> None:
        """Take `units` even if the server has not reserved them. Use this only for policies that serve requests while
        the server is unreachable."""
        self.taken_at = step = self.step
        lease.force(units, step)
        self._watch(lease)

    def correct(self, lease: Lease, units: int, step: int) -> None:
        """Change the units that were used at `step` by `units`, which may be negative. Positive `units` count as used
        now. The counter is of the kind `rate`.
        """
        lease.correct(units, step if units < 0 else self.step)
        if not lease.watched:
            self._watch(lease)
        if lease.tight:
            self._report_now.set()

    async def refresh(self, leases: Sequence[Lease], max_age_s: float) -> None:
        """Read the state of `leases` from the server. All must have one tag. Raises StateUnavailable.

        `max_age_s`: an earlier read that is at most this many seconds old is enough.
        """
        since = self._monotonic() - max_age_s
        if old := [lease for lease in leases if lease.seen < since]:
            group = self._group(old[0].tag)
            for lease in old:
                self._watch(lease)
            async with group.lock:
                if old := [lease for lease in old if lease.seen < since]:  # no other caller has read it meanwhile
                    await self._call(old)

    # ── rounds ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _group(self, tag: str) -> _Group:
        group = self._groups.get(tag)
        if group is None:
            group = self._groups[tag] = _Group(tag)
        return group

    def _watch(self, lease: Lease) -> None:
        self._group(lease.tag).active[lease] = None
        lease.watched = True

    async def _ask(self, wants: Sequence[Want]) -> NotEnough | None:
        """Ask the server for units, unless it has just refused them. Concurrent requests share one round trip."""
        if short := self._refused(wants):
            return short
        group = self._group(wants[0][0].tag)
        for lease, units in wants:
            lease.waiting.append(units)
            self._watch(lease)
            if not lease.ahead:
                group.quiet_s = _SELDOM_S
        registered = group.rounds
        try:
            async with group.lock:
                for _ in range(_MOST_CALLS):
                    if self.try_take(wants):
                        return None
                    if group.rounds > registered and (short := self._refused(wants)):
                        return short
                    group.rounds += 1
                    await self._call([lease for lease, _ in wants])
        finally:
            for lease, units in wants:
                lease.waiting.remove(units)
        return next(NotEnough(lease, units, None) for lease, units in wants if lease.free < units)

    def _refused(self, wants: Sequence[Want]) -> NotEnough | None:
        now = self._monotonic()
        for lease, units in wants:
            if lease.free < units and lease.refuses(units, now):
                return NotEnough(lease, units, lease.retry_at - now if lease.retry_at > now else None)
        return None

    async def _call(self, leases: Sequence[Lease]) -> None:
        """Exchange reports until the server has granted or refused units of each counter. The caller must hold the lock
        of the group."""
        bases: dict[Lease, str] = {}
        drained = self._dead.drained
        for _ in range(_MOST_CALLS):
            repeat = await self._exchange(leases, bases, drained)
            if not repeat:
                return
            unknown = [lease for lease, status in repeat.items() if status is Status.UNKNOWN]
            drained = await self._drained(unknown)
            bases = {lease: await self._base(lease) for lease in unknown}
            leases = list(repeat)
        raise StateUnavailable("the counters changed during every call")

    async def _drained(self, unknown: Sequence[Lease]) -> str:
        """The names of dead workers whose spend is completely in the ledger. Call this before reading the bases of
        the counters. Raises StateUnavailable.

        `unknown`: counters without a base. If there are any, the names are read again.
        """
        if unknown:
            await self._dead.refresh(_RECORD_FRESH_S)
        return self._dead.drained

    async def _exchange(self, leases: Sequence[Lease], bases: dict[Lease, str], drained: str) -> dict[Lease, Status]:
        """Make one call. Returns the counters that need another call, with the reason. `bases`: counter → its starting
        value. `drained`: dead workers whose spend the bases include."""
        sent = self._monotonic()
        reports = [lease.report(bases.get(lease, "")) for lease in leases]
        lost = "1" if sent - self._lost_at < _LOSS_S else "0"
        epoch, dead = self._state.epoch, self._dead_holders.dead
        head: list[str | int] = [self._worker, int(self._ttl_s * 1000), lost, epoch, dead, drained]
        words = [word for report in reports for word in report]
        keys = [lease.key for lease in leases]
        self._counts["rounds"] += 1
        if leases[0].ahead:
            reply = await self._state.run(SYNC, keys, [*head, *words])
        else:
            async with self._many_calls:
                reply = await self._state.run(SYNC, keys, [*head, *words])
        clock_ms, replies = parse(reply)
        self._set_clock(clock_ms, sent)
        repeat: dict[Lease, Status] = {}
        for lease, report, answer in zip(leases, reports, replies, strict=True):
            lease.learn(answer, int(report[4]), sent, self._ttl_s - 1)
            lease.orphaned = self._dead.note(lease, answer.orphans) if answer.orphans else 0
            if answer.holders:
                self._dead_holders.add(answer.holders)
            if answer.status in (Status.CHANGED, Status.UNKNOWN):
                repeat[lease] = answer.status
            elif answer.tight and lease.free > 0 and not lease.waiting:
                repeat[lease] = answer.status  # other workers need the units that are free here
        return repeat

    def _set_clock(self, clock_ms: int, sent: float) -> None:
        """Estimate the server's clock from `clock_ms` (Unix ms) in a reply. `sent`: time of the call. The estimate
        from the shortest round trip has priority.
        """
        now = self._monotonic()
        if now - sent < self._quickest_s or now - self._clock_set_at > _CLOCK_S:
            self._quickest_s, self._clock_set_at = now - sent, now
            self._ahead_s = clock_ms / 1000 - (sent + now) / 2

    async def _base(self, lease: Lease, reads: int = 1) -> str:
        """Read the starting value of a counter of the kind `sum`. Returns text for the Lua script: settled units, time
        of the read, units of dead workers. `reads`: maximum number of reads. Raises StateUnavailable.
        """
        base = await read_base(lease, lambda: self._clock(_MARKS_A_SECOND), reads)
        self._counts["rebuilt"] += 1
        return base + self._dead.recorded(lease)

    async def _run(self) -> None:
        faded = self._monotonic()
        while True:
            self._report_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await self._report_now.wait()
            now = self._monotonic()
            if fade := now - faded >= self._period_s * 0.9:
                faded = now
                await self._dead_holders.check()
            await self._sync(self._due(now, fade))

    def _due(self, now: float, fade: bool) -> list[_Group]:
        step = self.step
        due = []
        for tag, group in list(self._groups.items()):
            for lease in list(group.active):
                if fade:
                    lease.tick(step)
                lease.expire(now)
                if lease.done:
                    del group.active[lease]
                    lease.watched = False
            if not group.active:
                if not group.lock.locked():
                    del self._groups[tag]
                    self.away.discard(tag)
            elif now - group.last >= group.quiet_s or any(lease.needs_report for lease in group.active):
                due.append(group)
        return due

    async def _sync(self, groups: Iterable[_Group]) -> None:
        await asyncio.gather(*map(self._report, groups))

    async def _report(self, group: _Group) -> None:
        try:
            group.last = self._monotonic()
            leases = list(group.active)
            for start in range(0, len(leases), _MOST_COUNTERS):
                async with group.lock:  # the lock is released between calls, for requests that wait for units
                    await self._call(leases[start : start + _MOST_COUNTERS])
            if stale := [lease for lease in leases if lease.stale]:
                async with group.lock:
                    await self._repair(stale)
            self.away.discard(group.tag)
        except StateUnavailable as error:
            self._counts["failed"] += 1
            self.away.add(group.tag)
            log.debug("leases of %s: %s", group.tag, error)

    async def _repair(self, leases: Sequence[Lease]) -> None:
        """Rebuild the counters of the kind `sum` from which dead workers had reserved units. A worker's journal must
        be completely in the ledger first, because it shows what was spent.
        """
        now = self._monotonic()
        due = [lease for lease in leases if lease.repair_at <= now]
        for lease in due:
            lease.repair_at = now + _REBUILD_S
        if due:
            await self._dead.refresh(0)
        drained = self._dead.drained
        bases = {lease: await self._base(lease, _READS) for lease in due}
        if bases and (again := await self._exchange(due, bases, drained)):
            await self._call(list(again))

    def _new_epoch(self, epoch: str) -> None:
        if self._epoch and epoch != self._epoch:
            self._lost_at = self._monotonic()
        self._epoch = epoch
