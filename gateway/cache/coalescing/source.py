"""The source of a shared call's answer (`Source`), and an answer that one request pays for and others share
(`Purchase`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gateway.domain.answer import Answer, Sink
from gateway.domain.money.usage import Usage

if TYPE_CHECKING:
    from gateway.cache.coalescing.shared_call import SharedCall

Form = tuple[bool, bool]
"""(Whether the answer is a stream, whether the stream reports usage). Requests that need the same form can get the same
bytes."""


class Paid(NamedTuple):
    """The usage and the cost of a call, for the records of the request that pays for the call."""

    usage: Usage | None
    """None if the usage is not known yet, or if the call failed."""
    cost_pico: int | None
    """None if the cost is unknown, because the call has no price."""
    backend: str
    model: str


UNPAID = Paid(None, None, "", "")


class Source(Protocol):
    """The origin of a shared call's answer. It is either a backend that this worker pays, or a shared call of another
    worker."""

    @property
    def answer(self) -> Answer | None:
        """The answer; None before it has begun."""
        ...

    @property
    def ending(self) -> bytes:
        """The last bytes of the answer. Available after `pipe_to` has returned False."""
        ...

    @property
    def paid(self) -> Paid:
        """The usage and the cost. Both are final after `pipe_to` has returned False."""
        ...

    async def pipe_to(self, take: Sink) -> bool:
        """Pass each piece of the answer to `take` as it arrives. Returns False at the end of the answer, and True if
        `take` accepts no more pieces at present."""
        ...


class Purchase(Source, Protocol):
    """An answer that one request pays for. Other requests may share the answer."""

    published: bool
    """Whether a separate task reads the answer and settles its cost. If so, the request reads the answer from
    `subscriber`."""
    subscriber: Answer | None

    def share_plain(self, shared: SharedCall, buy: Callable[[], Awaitable[None]]) -> Awaitable[None]: ...

    async def share_stream(self, buy: Callable[[], Awaitable[None]], shared: SharedCall) -> None: ...
