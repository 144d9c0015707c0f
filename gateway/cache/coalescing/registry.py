"""The calls in progress of one worker, by request digest, with limited memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.cache.coalescing.shared_call import LEAST_KEPT_BYTES, SharedCall
from gateway.cache.coalescing.source import Form
from gateway.cache.coalescing.subscriber import Subscriber

KEPT_BYTES = 2**20
"""Maximum bytes of one answer that are kept in memory for late subscribers and slow readers. If an answer is larger, no
further request can join it, and slow readers are disconnected."""
ALL_BYTES = 32 * 2**20
Key = bytes | tuple[bytes, Form]
"""The digest of a request. If another worker pays for the call, the key also contains the form of the answer, because
only bytes of this form arrive from the other worker."""


class SharedCalls:
    """The calls in progress of one worker. Identical requests can join them."""

    def __init__(self, ended: Callable[[SharedCall], None] = lambda _: None) -> None:
        """`ended(shared)` is called once for each call, when it can no longer be joined.

        It is not called if a later call of the same digest has replaced the call in the registry, because the locks
        of the digest then belong to the later call.
        """
        self._ended = ended
        self.bytes = 0
        """Total size of all pieces in memory."""
        self._joinable: dict[Key, SharedCall] = {}
        self._running: set[SharedCall] = set()
        """Calls that run in a task of their own, including calls that can no longer be joined."""

    async def aclose(self) -> None:
        """Cancel all calls that run in a task of their own, and wait until the calls have ended."""
        running = tuple(self._running)
        for shared in running:
            shared.cancel()
        for shared in running:
            await shared.finished()

    def __len__(self) -> int:
        return len(self._joinable)

    @property
    def most_kept(self) -> int:
        """The maximum bytes of one answer that are kept in memory at present."""
        return KEPT_BYTES if self.bytes <= ALL_BYTES else LEAST_KEPT_BYTES

    def find(self, digest: bytes, deadline: float, remote_form: Form | None = None) -> SharedCall | None:
        """A call that can be joined; None if there is none. `deadline`: loop time until which the request can wait.

        `remote_form`: also find calls of other workers, if their answers have this form.
        """
        shared = self._joinable.get(digest)
        if shared is None and remote_form is not None:
            shared = self._joinable.get((digest, remote_form))
        if shared is None or not shared.joinable:
            return None
        now = asyncio.get_running_loop().time()
        return shared if shared.deadline - now >= (min(deadline, now + 1e9) - now) / 2 else None

    def add(self, digest: bytes, form: Form, deadline: float, *, remote: bool = False) -> SharedCall:
        """Register a new call. From now on, other requests may join the call. `remote`: another worker pays for the
        call."""
        shared = self._joinable[(digest, form) if remote else digest] = SharedCall(self, digest, form, deadline, remote)
        return shared

    def start(self, shared: SharedCall, work: Callable[[SharedCall], Awaitable[None]]) -> Subscriber:
        """Run `work`, which publishes the answer, in a separate task. Returns the first subscriber to the answer."""
        first = Subscriber(shared, pays=not shared.remote)
        self._running.add(shared)
        shared.start(work)
        return first

    def ended(self, shared: SharedCall) -> None:
        """Called when the task that makes the call `shared` ends."""
        self._running.discard(shared)

    def forget(self, shared: SharedCall) -> None:
        """Ensure that no further request joins the call."""
        key: Key = (shared.digest, shared.form) if shared.remote else shared.digest
        if self._joinable.get(key) is shared:
            del self._joinable[key]
            self._ended(shared)
