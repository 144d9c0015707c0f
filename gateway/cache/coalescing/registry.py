"""Calls in progress of one worker by request digest, bounded in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.cache.coalescing.shared_call import Form, SharedCall, Subscriber

KEPT_BYTES = 2**20
"""Most bytes kept of one answer for late subscribers and slow readers. Beyond it no request can join, and slow readers
are cut off."""
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
        self._calls: dict[bytes, SharedCall] = {}
        """Those that this worker pays for."""
        self._visits: dict[tuple[bytes, Form], SharedCall] = {}
        """Calls that another worker pays for: one for each form, shared by all its subscribers here."""
        self._aloft: set[SharedCall] = set()
        """All calls whose task runs, also those that cannot be joined any more."""

    async def aclose(self) -> None:
        """Cancel those under way and wait until they have ended."""
        active = tuple(self._aloft)
        for shared in active:
            shared.give_up()
        for shared in active:
            await shared.finished()

    def __len__(self) -> int:
        return len(self._calls) + len(self._visits)

    @property
    def most_kept(self) -> int:
        """Of one answer."""
        return KEPT_BYTES if self.bytes <= ALL_BYTES else LEAST_KEPT_BYTES

    def find(self, digest: bytes, deadline: float, join_remote: Form | None = None) -> SharedCall | None:
        """A call that can be joined and that waits at least until `deadline` (loop time). `join_remote`: also one that
        another worker pays for, in this form.

        `join_remote`: of those that a peer pays for the one of this form will do.
        """
        shared = self._calls.get(digest)
        if shared is None and join_remote is not None:
            shared = self._visits.get((digest, join_remote))
        if shared is None or not shared.joinable:
            return None
        now = asyncio.get_running_loop().time()
        return shared if shared.deadline - now >= (min(deadline, now + 1e9) - now) / 2 else None

    def announce(self, digest: bytes, form: Form, deadline: float, *, claimed: bool) -> SharedCall:
        """A new shared call that others may join. This request pays for it."""
        shared = self._calls[digest] = SharedCall(self, digest, form, deadline)
        shared.claimed = claimed
        return shared

    def launch(self, shared: SharedCall, work: Callable[[SharedCall], Awaitable[None]]) -> Subscriber:
        """Have `work` bring the answer of what was announced, by `SharedCall.carry`; the place of who asked first."""
        return self._start(shared, work, leads=True)

    def join_remote(
        self, digest: bytes, form: Form, deadline: float, fetch: Callable[[SharedCall], Awaitable[None]]
    ) -> Subscriber:
        """As `launch`, for an answer that a peer pays for."""
        shared = self._visits[digest, form] = SharedCall(self, digest, form, deadline)
        return self._start(shared, fetch, leads=False)

    def _start(self, shared: SharedCall, work: Callable[[SharedCall], Awaitable[None]], *, leads: bool) -> Subscriber:
        first = Subscriber(shared, leads=leads)
        self._aloft.add(shared)
        shared.start(work)
        return first

    def finished(self, shared: SharedCall) -> None:
        """The call's task has finished."""
        self._aloft.discard(shared)
        self.forget(shared)

    def forget(self, shared: SharedCall) -> None:
        """It cannot be joined any more."""
        if self._calls.get(shared.digest) is shared:
            del self._calls[shared.digest]
        if self._visits.get((shared.digest, shared.form)) is shared:
            del self._visits[shared.digest, shared.form]
        self._ended(shared)
