"""One backend call whose answer is read by several subscribers while it arrives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from itertools import islice
from typing import TYPE_CHECKING, Any

from gateway.cache.coalescing.source import UNPAID, Form, Paid, Source
from gateway.domain.answer import Answer, Sink
from gateway.errors import StreamBroken

if TYPE_CHECKING:
    from gateway.cache.coalescing.registry import SharedCalls
    from gateway.cache.coalescing.subscriber import Subscriber


LEAST_KEPT_BYTES = 2**16
"""The limit that replaces `KEPT_BYTES` while all answers in progress together take more memory than `ALL_BYTES`."""


class _Yield:
    """Awaiting this object lets each other ready task run once. The effect is that of `asyncio.sleep(0)`, but it needs
    a fifth of the time."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_YIELD = _Yield()


class SharedCall:
    """One call in progress and its subscribers. One task makes the call and publishes the answer's pieces. The task is
    cancelled when the last subscriber leaves. Use this object in one event loop only.

    A stream is read in a task of its own (`start`). A plain answer is read in the first caller's task (`run_call`, then
    `finish_call`).
    """

    error: Exception | None = None
    claimed = False
    """Whether this worker holds the host lock for the call."""
    over = False
    may_be_cut = False
    """Whether a budget of the request that pays limits the length of the answer. Such an answer is not shared, because
    other requests have other budgets."""
    ending = b""
    count = 0
    """Number of pieces that were published so far."""
    _source: Source | None = None
    _task: asyncio.Task[None] | None = None
    _finished: asyncio.Future[None] | None = None
    _demand: asyncio.Future[None] | None = None
    _bytes = 0
    _complete_buffer = True
    """Whether all pieces of the answer, from the first one, are in memory."""

    def __init__(self, calls: SharedCalls, digest: bytes, form: Form, deadline: float, remote: bool) -> None:
        """`deadline`: loop time at which the call is cancelled. `remote`: another worker pays for the call."""
        self.digest, self.form, self.deadline, self.remote = digest, form, deadline, remote
        self.subscribers: set[Subscriber] = set()
        self.live: dict[Subscriber, tuple[Sink, asyncio.Future[bool]]] = {}
        """The subscribers that have read all published pieces and wait for the next piece."""
        self._calls = calls
        self._pieces: deque[bytes] = deque()
        self._awaiting_start: list[asyncio.Future[None]] = []
        self._awaiting_end: list[asyncio.Future[None]] = []

    @property
    def answer(self) -> Answer | None:
        """The answer; None before it has begun."""
        return None if self._source is None else self._source.answer

    @property
    def paid(self) -> Paid:
        """The usage and the cost of the call. Both are final when `over` is true."""
        return UNPAID if self._source is None else self._source.paid

    @property
    def joinable(self) -> bool:
        """Whether a new subscriber would still get the whole answer."""
        return self._complete_buffer and self.error is None

    # -- publish -------------------------------------------------------------------------------------------------------

    def start(self, work: Callable[[SharedCall], Awaitable[None]]) -> None:
        """Run `work` in a separate task. `work` publishes the answer. The task continues if the request that started it
        ends."""
        self._task = asyncio.get_running_loop().create_task(self._run(work), name="shared call")

    def cancel(self) -> None:
        """Cancel the call's task."""
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._task.cancel)  # after the first step, so that its clean-up runs

    async def _run(self, work: Callable[[SharedCall], Awaitable[None]]) -> None:
        try:
            await work(self)
        except asyncio.CancelledError as end:
            self._fail(end)
            raise
        except Exception as error:  # the subscribers raise the error
            self._fail(error)
        finally:
            self._calls.ended(self)
            self.finish_call()

    async def run_call(self, source: Source, buy: Callable[[], Awaitable[None]]) -> None:
        """Make the call for a plain answer in the current task. Returns when the answer is complete. Raises what `buy`
        raises. Always call `finish_call` afterwards."""
        try:
            await buy()
            await self.publish(source)
        except BaseException as error:
            self._fail(error)
            raise

    def outlives(self, serving: asyncio.Task[Any]) -> bool:
        """Whether the task `serving` must continue although its own client has disconnected.

        True while the call has other subscribers. The last of them cancels `serving` when it leaves.
        """
        if self.over or not self.subscribers:
            return False
        self._task = serving
        return True

    def finish_call(self) -> None:
        """Called when the task of the call ends, after the answer was stored."""
        self._calls.forget(self)
        self._task = None  # breaks a reference cycle that would keep the answer until the next garbage collection
        if self._finished is not None:
            _resolve(self._finished, None)
        if self._pieces:
            self._free_pieces()

    async def publish(self, source: Source) -> None:
        """Pass all of `source` to all subscribers. Raises what `source` raises."""
        self._source = source
        answer = source.answer
        if answer is not None and answer.attempt is not None and answer.attempt.output_cap is not None:
            self.may_be_cut = True
            self._calls.forget(self)
            for future in self._awaiting_end:  # these requests must not wait for an answer that they will not get
                _resolve(future, None)
            self._awaiting_end.clear()
        while await source.pipe_to(self._put):
            await self._wait_for_demand()
        self.ending, self.over = source.ending, True
        if self.subscribers:
            self._wake()
            await _YIELD  # the subscribers write the end of the answer
            await _YIELD  # the write batcher sends it before this task stores the answer

    def _put(self, piece: bytes) -> bool:
        """Pass a piece to all subscribers that wait for a piece. Returns whether any subscriber wants the next
        piece."""
        size = len(piece)
        self._pieces.append(piece)
        self.count += 1
        self._bytes += size
        self._calls.bytes += size
        if self._bytes > LEAST_KEPT_BYTES and self._bytes > self._calls.most_kept:
            self._drop_read_pieces()
        if self._awaiting_start:
            self._wake()
        live = self.live
        for subscriber, (take, paused) in tuple(live.items()):
            subscriber.at = self.count
            try:
                wants_more = take(piece)
            except Exception as error:  # an error at one client does not affect the others
                del live[subscriber]
                _reject(paused, error)
                continue
            if not wants_more:
                del live[subscriber]
                _resolve(paused, True)
        return True if self.live else self._wanted

    @property
    def _wanted(self) -> bool:
        return bool(self.live) or any(subscriber.silent for subscriber in self.subscribers)

    def _drop_read_pieces(self) -> None:
        """Drop the pieces that all subscribers have read. If the remaining pieces exceed the memory limit of one
        answer, also drop unread pieces.
        """
        self._complete_buffer = False
        needed = min((each.at for each in self.subscribers if not each.silent), default=self.count)
        limit = self._calls.most_kept
        while self._pieces and (self.first < needed or self._bytes > limit):
            self._drop_first()

    def _drop_first(self) -> None:
        size = len(self._pieces.popleft())
        self._bytes -= size
        self._calls.bytes -= size

    async def _wait_for_demand(self) -> None:
        """Wait until a subscriber wants the next piece."""
        if not self._wanted:
            self._demand = asyncio.get_running_loop().create_future()
            await self._demand
            self._demand = None

    def request_more(self) -> None:
        """Tell the task of the call that a subscriber wants the next piece."""
        if self._demand is not None:
            _resolve(self._demand, None)

    def _fail(self, error: BaseException) -> None:
        if not self.over:
            self.error = error if isinstance(error, Exception) else StreamBroken("The gateway cancelled this answer.")
            self._calls.forget(self)  # a new identical request must make a new call from now on
            self._wake()

    def _wake(self) -> None:
        """Wake the subscribers that wait for the start of the answer. If the call has ended or failed, wake all waiting
        subscribers."""
        awaiting, self._awaiting_start = self._awaiting_start, []
        if self.over or self.error is not None:
            awaiting += self._awaiting_end
            self._awaiting_end.clear()
            live, self.live = self.live, {}
            for _, paused in live.values():
                _resolve(paused, False)
        for future in awaiting:
            _resolve(future, None)

    # -- subscribe -----------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """Index of the first piece that is in memory."""
        return self.count - len(self._pieces)

    def pieces_from(self, at: int) -> list[bytes]:
        return list(islice(self._pieces, at - self.first, None))

    async def ready(self, *, whole: bool) -> None:
        """Wait for the first piece of the answer, or for a failure. `whole`: wait for the end of the answer instead of
        the first piece."""
        if not (self.over or self.error is not None or (self.count and not whole)):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._awaiting_end if whole else self._awaiting_start).append(future)
            await future

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber. If it was the last subscriber, and the call is still in progress, cancel the call."""
        self.subscribers.discard(subscriber)
        self.live.pop(subscriber, None)
        if self.subscribers:
            return
        if self._task is None:
            self._free_pieces()
        elif not self.over and self.error is None:
            self._calls.forget(self)
            self.cancel()
        else:
            self.request_more()

    async def finished(self) -> None:
        """Wait until the task of the call has finished."""
        if self.over:  # in most cases, the task finishes in these two steps
            await _YIELD
            await _YIELD
        if self._task is not None:
            if self._finished is None:
                self._finished = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._finished)

    def _free_pieces(self) -> None:
        """Drop all pieces of the answer if no present or future subscriber can need them."""
        if not self.subscribers:
            self._calls.bytes -= self._bytes
            self._bytes = 0
            self._pieces.clear()


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _reject(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
