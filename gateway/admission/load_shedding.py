"""Limits the number of requests that one worker accepts. Batch requests are refused first, and each team has a fair
share.

A refusal takes a fraction of the time of an answer, because it is made before the body is read. While the event loop
is not late, only `requests.concurrent` limits the worker. At each measurement at which the loop is late, the limit
falls by a tenth. At all other measurements, it rises by a twentieth.

As in the algorithm CoDel, the loop counts as late only if it was late at each of the last measurements. A queue that
never empties means overload. A queue that empties means a burst, a garbage collection, or another program on the same
processor.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Literal

from gateway.errors import GatewayError, Overloaded

Reason = Literal["", "full", "share", "batch"]

TICK_S = 0.1
LOOKS = 10
"""Number of consecutive late measurements that count as overload."""
_LONGEST_PAUSE_S = 2.0
_LEAST = 32
"""The lowest limit. If the loop is late with so few requests, the lateness has another cause."""
_NEWEST = 0.5
_MOST_WAIT_S = 30.0


def refuses(bound: int, most: int, total: int, mine: int, teams: int, *, batch: bool, batches: int) -> Reason:
    """The reason why one more request may not start; empty if it may start. `bound`: the present limit. `most`: the
    highest limit. `total`, `mine`, `batches`: requests in progress of all teams, this team, and priority batch.
    `teams`: number of teams with requests, including this one."""
    tenth = bound // 10
    if total >= most:
        return "full"
    if batch and total >= bound - 2 * tenth and batches >= max(1, bound // 20):
        return "batch"
    # A team with fewer than bound / teams requests may exceed `bound`, up to `most`.
    if total >= bound - tenth and mine >= bound // max(2, teams):
        return "share" if teams > 1 else "full"
    return ""


def _calm(bound: int) -> int:
    return bound * 4 // 5


class LoadShedder:
    """Counts requests in progress. Ten times per second, it measures how late the event loop runs its timers."""

    def __init__(self, *, concurrent: int, lag_s: float) -> None:
        """`concurrent`: the highest limit of requests in progress. `lag_s`: lateness of the event loop in seconds above
        which the limit is lowered."""
        self._most, self._most_lag_s = concurrent, lag_s
        self._bound = concurrent
        self._calm = _calm(concurrent)
        """Number of requests in progress below which no request is refused."""
        self._total = self._most_lately = self._batches = 0
        self._teams: dict[str, int] = {}
        self._ended = self._refused = 0
        self._served_per_s = self._refused_per_s = 0.0
        self._lags_s: deque[float] = deque([0.0] * LOOKS, LOOKS)
        self._counts: dict[tuple[Reason, bool], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TICK_S, self._measure, loop, loop.time() + TICK_S)

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def stats(self) -> dict[str, int | float | str]:
        """Figures of the worker. A number of refusals has the key `REASON.CLASS`."""
        counts = {f"{why}.{'batch' if batch else 'interactive'}": count for (why, batch), count in self._counts.items()}
        return {
            "in_flight": self._total,
            "teams": len(self._teams),
            "bound": self._bound,
            "lag_ms": round(min(self._lags_s) * 1000, 3),
            **counts,
        }

    def enter(self, team: str, *, batch: bool) -> None:
        """Count a request that begins. The caller must call `leave` when the request ends. Raises Overloaded; then the
        request is not counted."""
        mine, total = self._teams.get(team, 0), self._total
        if total >= self._calm:
            teams = len(self._teams) + (not mine)
            reason = refuses(self._bound, self._most, total, mine, teams, batch=batch, batches=self._batches)
            if reason:
                raise self._refusal(reason, team, batch)
        self._total = total = total + 1
        if total > self._most_lately:
            self._most_lately = total
        if batch:
            self._batches += 1
        self._teams[team] = mine + 1

    def leave(self, team: str, *, batch: bool) -> None:
        self._total -= 1
        if batch:
            self._batches -= 1
        self._ended += 1
        left = self._teams[team] - 1
        if left:
            self._teams[team] = left
        else:
            del self._teams[team]

    def pause_s(self, refusal: GatewayError) -> float:
        """Seconds for which the connection of a refused request is not read, so that immediate retries cause no
        load. 0 if the loop is not late.
        """
        if self._bound == self._most or not isinstance(refusal, Overloaded):
            return 0.0
        return min(refusal.retry_after_s or 0.0, _LONGEST_PAUSE_S)

    def tick(self, lag_s: float) -> None:
        """Adjust the limit after one measurement. `lag_s`: seconds by which the loop was late."""
        self._lags_s.append(lag_s)
        self._served_per_s += (self._ended / TICK_S - self._served_per_s) * _NEWEST
        self._refused_per_s += (self._refused / TICK_S - self._refused_per_s) * _NEWEST
        self._ended = self._refused = 0
        if min(self._lags_s) > self._most_lag_s:
            self._bound = min(self._bound, max(_LEAST, min(self._bound, self._most_lately) * 9 // 10))
        elif self._bound < self._most:
            bound = max(self._bound, self._total)
            self._bound = min(self._most, bound + max(1, bound // 20))
        self._calm = _calm(self._bound)
        self._most_lately = self._total

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self.tick(max(0.0, now - due))
        self._timer = loop.call_later(TICK_S, self._measure, loop, now + TICK_S)

    def _refusal(self, reason: Reason, team: str, batch: bool) -> Overloaded:
        self._refused += 1
        self._counts[reason, batch] = self._counts.get((reason, batch), 0) + 1
        why = {
            "batch": "The gateway is busy and serves interactive requests first",
            "share": f"The gateway is busy and team {team} has its share of it in use",
        }.get(reason, "The gateway has as many requests in progress as it can serve")
        return Overloaded(f"{why}; try again later, or send fewer requests at a time.", retry_after_s=self._wait_s())

    def _wait_s(self) -> float:
        """Seconds after which a refused client should try again. The value is random, so that clients do not retry
        together."""
        needed = self._refused_per_s / max(1.0, self._served_per_s)
        return min(max(1.0, needed), _MOST_WAIT_S) * random.uniform(0.8, 1.4)  # noqa: S311 - spreads retries, no secret
