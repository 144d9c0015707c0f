"""The answers under way of one worker, by what is asked: found, begun, and bounded in memory all together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.cache.coalescing.shared_call import Form, SharedCall, Subscriber

KEPT_BYTES = 2**20
"""Of one answer: for who asks later, and for who reads slowly. Beyond it nobody can join, and who lags is cut off."""
LEAST_KEPT_BYTES = 2**16
"""As soon as all answers under way take more than `ALL_BYTES`."""
ALL_BYTES = 32 * 2**20


class SharedCalls:
    """Those of one worker, by what is asked."""

    def __init__(self, ended: Callable[[SharedCall], None] = lambda _: None) -> None:
        """`ended(flight)` when it cannot be joined any more; perhaps twice."""
        self._ended = ended
        self.bytes = 0
        """Of all pieces that are kept."""
        self._flights: dict[bytes, SharedCall] = {}
        """Those that this worker pays for."""
        self._visits: dict[tuple[bytes, Form], SharedCall] = {}
        """Those that a neighbour pays for: one for each form, so that all who follow them go along."""
        self._aloft: set[SharedCall] = set()
        """All whose task runs, also those that nobody can join any more."""

    async def aclose(self) -> None:
        """Cancel those under way and wait until they have ended."""
        aloft = tuple(self._aloft)
        for flight in aloft:
            flight.give_up()
        for flight in aloft:
            await flight.landed()

    def __len__(self) -> int:
        return len(self._flights) + len(self._visits)

    @property
    def most_kept(self) -> int:
        """Of one answer."""
        return KEPT_BYTES if self.bytes <= ALL_BYTES else LEAST_KEPT_BYTES

    def find(self, digest: bytes, deadline: float, visit: Form | None = None) -> SharedCall | None:
        """One that can be joined, and whose leader has the patience for who gives up at `deadline` (loop time).

        `visit`: of those that a neighbour pays for the one of this form will do.
        """
        flight = self._flights.get(digest)
        if flight is None and visit is not None:
            flight = self._visits.get((digest, visit))
        if flight is None or not flight.joinable:
            return None
        now = asyncio.get_running_loop().time()
        return flight if flight.deadline - now >= (min(deadline, now + 1e9) - now) / 2 else None

    def announce(self, digest: bytes, form: Form, deadline: float, *, claimed: bool) -> SharedCall:
        """A new flight, for others to join. Who asks for this pays, and brings the answer."""
        flight = self._flights[digest] = SharedCall(self, digest, form, deadline)
        flight.claimed = claimed
        return flight

    def launch(self, flight: SharedCall, work: Callable[[SharedCall], Awaitable[None]]) -> Subscriber:
        """Have `work` bring the answer of what was announced, by `SharedCall.carry`; the place of who asked first."""
        return self._start(flight, work, leads=True)

    def visit(
        self, digest: bytes, form: Form, deadline: float, fetch: Callable[[SharedCall], Awaitable[None]]
    ) -> Subscriber:
        """As `launch`, for an answer that a neighbour pays for."""
        flight = self._visits[digest, form] = SharedCall(self, digest, form, deadline)
        return self._start(flight, fetch, leads=False)

    def _start(self, flight: SharedCall, work: Callable[[SharedCall], Awaitable[None]], *, leads: bool) -> Subscriber:
        first = Subscriber(flight, leads=leads)
        self._aloft.add(flight)
        flight.start(work)
        return first

    def landed(self, flight: SharedCall) -> None:
        """Whoever brought it is done with it."""
        self._aloft.discard(flight)
        self.forget(flight)

    def forget(self, flight: SharedCall) -> None:
        """Nobody can join it any more."""
        if self._flights.get(flight.digest) is flight:
            del self._flights[flight.digest]
        if self._visits.get((flight.digest, flight.form)) is flight:
            del self._visits[flight.digest, flight.form]
        self._ended(flight)
