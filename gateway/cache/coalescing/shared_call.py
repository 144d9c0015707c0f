"""One backend call whose answer several subscribers read while it arrives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gateway.domain.answer import Answer, Sink, pieces
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt
from gateway.errors import StreamBroken

if TYPE_CHECKING:
    from gateway.cache.coalescing.registry import SharedCalls

Form = tuple[bool, bool]
"""Streamed, and with its usage? Requests of the same form get the same bytes."""


class Paid(NamedTuple):
    """The usage and cost of a call, for the request that pays for it."""

    usage: Usage | None
    cost_pico: int | None
    """None: unpriced."""
    backend: str
    model: str


class Source(Protocol):
    """Where a shared call's answer comes from: a backend that this worker pays, or a shared call of another worker."""

    @property
    def answer(self) -> Answer | None:
        """None until it has begun."""
        ...

    @property
    def ending(self) -> bytes:
        """Known when all is poured."""
        ...

    @property
    def paid(self) -> Paid:
        """Exact when all is poured."""
        ...

    async def pipe_to(self, take: Sink) -> bool:
        """As `Answer.pipe_to`."""
        ...


class Purchase(Source, Protocol):
    """An answer that its caller pays, and others may share."""

    published: bool
    """A task of its own reads and settles it; the caller reads `subscriber`."""
    subscriber: Answer | None

    async def share_plain(self, shared: SharedCall, buy: Callable[[], Awaitable[None]]) -> None: ...

    async def share_stream(self, buy: Callable[[], Awaitable[None]], shared: SharedCall) -> None: ...


class _Turn:
    """Awaited, it lets the others go first; as `asyncio.sleep(0)`, at a fifth of the cost."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_TURN = _Turn()
_UNPAID = Paid(None, None, "", "")


class SharedCall:
    """One call in progress and its subscribers. It advances with the fastest subscriber and ends with the last.

    Belongs to one event loop. The task that makes the call publishes (`publish`); each subscriber reads (`Subscriber`).
    A stream is read in a task of its own (`start`), because its subscribers read at different speeds and the first
    caller is one of them. A plain answer is read by the first caller (`run_call`, then `finish_call`). Nearly
    every call has one subscriber: initial values are class attributes, which cost a call nothing.
    """

    error: Exception | None = None
    claimed = False
    """The other workers of this host are told that this worker makes the call."""
    over = False
    ending = b""
    count = 0
    """Pieces so far."""
    _source: Source | None = None
    _task: asyncio.Task[None] | None = None
    _landed: asyncio.Future[None] | None = None
    _demand: asyncio.Future[None] | None = None
    _bytes = 0
    _open = True

    def __init__(self, flights: SharedCalls, digest: bytes, form: Form, deadline: float) -> None:
        """`deadline`: loop time at which its leader gives up."""
        self.digest, self.form, self.deadline = digest, form, deadline
        self.followers: set[Subscriber] = set()
        self.live: dict[Subscriber, tuple[Sink, asyncio.Future[bool]]] = {}
        """Subscribers that have read everything and want more now."""
        self._calls = flights
        self._pieces: deque[bytes] = deque()
        self._waiting: list[tuple[bool, asyncio.Future[None]]] = []
        """Subscribers that wait for the end (True) or only for the beginning (False)."""

    @property
    def answer(self) -> Answer | None:
        """None until it has begun."""
        return None if self._source is None else self._source.answer

    @property
    def paid(self) -> Paid:
        """Exact when it is over."""
        return _UNPAID if self._source is None else self._source.paid

    @property
    def joinable(self) -> bool:
        """Is the whole answer still here, and its task running?"""
        return self._open and self.error is None

    # -- bring it ------------------------------------------------------------------------------------------------------

    def start(self, work: Callable[[SharedCall], Awaitable[None]]) -> None:
        """`work` brings the answer by `publish`, in a task of its own, so that it outlives whoever asked first."""
        self._task = asyncio.get_running_loop().create_task(self._run(work), name="flight")

    def give_up(self) -> None:
        """Bring no more of it."""
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._task.cancel)  # not before its first step: its exits must run

    async def _run(self, work: Callable[[SharedCall], Awaitable[None]]) -> None:
        try:
            await work(self)
        except asyncio.CancelledError as end:
            self._fail(end)
            raise
        except Exception as error:  # told to those who wait; whoever leads raises it
            self._fail(error)
        finally:
            self.finish_call()

    async def run_call(self, source: Source, buy: Callable[[], Awaitable[None]]) -> None:
        """A plain answer, by whoever asked first, in the task that serves it: all of it is there when `buy` has
        returned. `finish_call` has to follow, however this ends. Raises what `buy` raises."""
        try:
            await buy()
            await self.publish(source)
        except BaseException as error:
            self._fail(error)
            raise

    def outlives(self, serving: asyncio.Task[Any]) -> bool:
        """The client of whoever brings it has left: does somebody else want what `serving` brings? The last one to
        leave ends it then."""
        if self.over or not self.followers:
            return False
        self._task = serving
        return True

    def finish_call(self) -> None:
        """The call's task has finished, and its answer is stored if it is to be kept."""
        self._calls.finished(self)
        self._task = None  # else a circle keeps all of it until garbage is looked for
        if self._landed is not None:
            _resolve(self._landed, None)
        self._release_pieces()

    async def publish(self, source: Source) -> None:
        """Hand the whole of `source` to all subscribers. Raises what `source` raises."""
        self._source = source
        while await source.pipe_to(self._put):
            await self._wanted()
        self.ending, self.over = source.ending, True
        if self.followers:
            self._tell()
            await _TURN  # who waited for the end goes first: what follows is not theirs to wait for

    def _put(self, piece: bytes) -> bool:
        """Hand a piece to all subscribers that want it now; returns whether any wants the next one."""
        self._pieces.append(piece)
        self.count += 1
        self._bytes += len(piece)
        self._calls.bytes += len(piece)
        if self._bytes > self._calls.most_kept:
            self._shed()
        if self._waiting:
            self._tell()
        live = self.live
        for subscriber, (take, paused) in tuple(live.items()):
            subscriber.at = self.count
            try:
                wants = take(piece)
            except Exception as error:  # one client's trouble is not the others'
                del live[subscriber]
                _fail(paused, error)
                continue
            if not wants:
                del live[subscriber]
                _resolve(paused, True)
        return bool(live) or any(subscriber.silent for subscriber in self.followers)

    def _shed(self) -> None:
        """Keep only what some follower still needs, and not even that beyond the bound."""
        self._open = False
        needed = min((each.at for each in self.followers if not each.silent), default=self.count)
        most = self._calls.most_kept
        while self._pieces and (self.first < needed or self._bytes > most):
            self._drop()

    def _drop(self) -> None:
        size = len(self._pieces.popleft())
        self._bytes -= size
        self._calls.bytes -= size

    async def _wanted(self) -> None:
        """Wait until a subscriber wants more."""
        if not self.live and not any(subscriber.silent for subscriber in self.followers):
            self._demand = asyncio.get_running_loop().create_future()
            await self._demand
            self._demand = None

    def want(self) -> None:
        """A follower does."""
        if self._demand is not None and not self._demand.done():
            self._demand.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if not self.over:
            self.error = error if isinstance(error, Exception) else StreamBroken("The gateway gave up this answer.")
            self._calls.forget(self)  # at once: whoever asks again begins anew
            self._tell()

    def _tell(self) -> None:
        """It has begun, or it is over, one way or the other."""
        ended = self.over or self.error is not None
        waiting, self._waiting = self._waiting, []
        for end, news in waiting:
            if ended or not end:
                _resolve(news, None)
            else:
                self._waiting.append((end, news))
        if ended and self.live:
            live, self.live = self.live, {}
            for _, paused in live.values():
                _resolve(paused, False)

    # -- follow it -----------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """Number of the first piece that is still here."""
        return self.count - len(self._pieces)

    def pieces_from(self, at: int) -> list[bytes]:
        return list(islice(self._pieces, at - self.first, None))

    async def ready(self, whole: bool) -> None:
        """Wait until its first piece is here, or all of it; or it has failed."""
        if not (self.over or self.error is not None or (self.count and not whole)):
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((whole, news))
            await news

    def leave(self, subscriber: Subscriber) -> None:
        """One less; the last one ends it."""
        self.followers.discard(subscriber)
        self.live.pop(subscriber, None)
        if self.followers:
            return
        task = self._task
        if task is None:
            self._release_pieces()
        elif not self.over and self.error is None:
            self._calls.forget(self)
            self.give_up()
        else:
            self.want()

    async def finished(self) -> None:
        """Wait until the call's task has finished."""
        if self.over:
            await _TURN  # which nearly always is enough
        if self._task is not None:
            if self._landed is None:
                self._landed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._landed)

    def _release_pieces(self) -> None:
        """The pieces are not needed any more."""
        if not self.followers:
            while self._pieces:
                self._drop()


class Subscriber:
    """Implements `Answer` for one subscriber of a shared call: it reads from the beginning, at its own pace."""

    attempt: Attempt | None = None
    stream, status, content_type = False, 200, ""
    """As the answer's, once it has begun."""
    _answer: Answer
    """The request that this subscriber belongs to."""
    ending = b""
    complete = False

    def __init__(self, shared: SharedCall, *, leads: bool = False, silent: bool = False) -> None:
        """`silent`: it waits for the end and takes no pieces."""
        self.shared, self.silent = shared, silent
        self.at = 0
        """Pieces taken."""
        self._leads = leads
        shared.followers.add(self)

    async def begin(self) -> bool:
        """Wait for its first bytes, or, if silent, for its end. False: it failed before, and nothing was told yet."""
        shared = self.shared
        try:
            await shared.ready(self.silent)
        except BaseException:
            await self.aclose()
            raise
        if shared.error is not None:
            await self.aclose()
            return False
        assert shared.answer is not None
        self._answer = answer = shared.answer
        self.stream, self.status, self.content_type = answer.stream, answer.status, answer.content_type
        if shared.over and not shared.count:
            self._end()
        return True

    @property
    def over(self) -> bool:
        return self.shared.over and self.at >= self.shared.count

    @property
    def finish(self) -> str:
        return self._answer.finish

    @property
    def choices(self) -> list[dict[str, Any]] | None:
        return self._answer.choices

    def __aiter__(self) -> AsyncIterator[bytes]:
        return pieces(self.pipe_to)

    async def pipe_to(self, take: Sink) -> bool:
        """First what was missed, then each piece as it comes. Raises what the call met: StreamBroken for who joined,
        and for who reads so slowly that what comes next for it is no longer here."""
        shared = self.shared
        while True:
            if self.at < shared.first:
                shared.leave(self)
                raise StreamBroken("This client read its answer too slowly beside others that share it; ask again.")
            for piece in shared.pieces_from(self.at):
                self.at += 1
                if not take(piece):
                    return True
            if shared.error is not None:
                raise self._told(shared.error)
            if shared.over:
                self._end()
                return False
            paused: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            shared.live[self] = take, paused
            shared.want()
            try:
                if await paused:
                    return True
            finally:
                shared.live.pop(self, None)

    def _told(self, error: Exception) -> Exception:
        """What ended the leader's answer is the leader's own affair."""
        if self._leads:
            return error
        return StreamBroken("The answer that this request shared with another one broke off; ask again.")

    def _end(self) -> None:
        self.ending, self.complete = self.shared.ending, self._answer.complete

    def completion(self) -> bytes | None:
        return self._answer.completion()

    def delivered_text(self) -> str:
        return self._answer.delivered_text()

    def delivered_characters(self) -> int:
        return self._answer.delivered_characters()

    async def cut(self, delivered: Usage) -> bool:
        """It is not this one's to end."""
        return False

    async def aclose(self) -> None:
        """Leave; the last one waits until all is closed behind it."""
        shared = self.shared
        shared.leave(self)
        if not shared.followers:
            await shared.finished()


def _resolve(news: asyncio.Future[Any], value: Any) -> None:
    if not news.done():
        news.set_result(value)


def _fail(news: asyncio.Future[Any], error: Exception) -> None:
    if not news.done():
        news.set_exception(error)
