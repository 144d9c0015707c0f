"""Interface of a provider: takes a call, returns a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.dialects.base import Translator
from gateway.domain.answer import Sink
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.text.concealment import Concealer
from gateway.errors import BackendError

PATHS: Mapping[DialectName, str] = {
    "openai_chat": "/chat/completions",
    "openai_responses": "/responses",
    "openai_completions": "/completions",
    "openai_embeddings": "/embeddings",
    "anthropic_messages": "/messages",
}
"""Backend dialect → path of its endpoint below the base URL. A request of any other dialect names its own path."""


@dataclass(slots=True)  # not frozen, which would make it three times as dear to build, once per call
class Call:
    """One call of one backend, its body already in the backend's dialect. Nobody changes it once it is sent."""

    request: CompletionRequest
    wire: Translator
    body: bytes
    deadline: float
    """Loop time."""
    first_byte_timeout: float
    """Seconds."""
    stall_timeout: float
    """The most seconds between two pieces of an answer that has begun."""
    request_deadline: float
    """Loop time; `deadline` is earlier where the backend's own `timeout` is."""

    secret: str = field(default="", repr=False)
    """The backend's key, which no message may carry."""

    attempt_id: str = ""
    """The ledger entry's id too: the backend is told it, so that its books can be compared with ours. Known when the
    attempt is opened, which is after the call was found to be possible."""

    def conceal(self, error: BackendError) -> None:
        """Take the backend's key out of whatever the backend said in `error`."""
        if not self.secret:
            return
        conceal = Concealer(self.secret)
        error.message = conceal(error.message)
        error.args = (error.message,)
        for name in ("code", "kind", "param"):
            if (said := getattr(error, name)) and (told := conceal(said)) != said:
                setattr(error, name, told)

    @property
    def out_of_time(self) -> bool:
        """Is the request's own deadline over?"""
        return asyncio.get_running_loop().time() >= self.request_deadline


class Upstream(Protocol):
    """A response as it arrives. `pipe_to` and `read` raise BackendErrors; `aclose` is safe to call twice."""

    status: int
    whole: bool
    """All of the body has arrived."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Names in lower case."""
        ...

    def header(self, name: bytes) -> bytes | None: ...

    async def pipe_to(self, take: Sink) -> bool:
        """Hand `take` the body, piece by piece as it arrives, until it wants no more now, or the body has ended.

        Returns whether there may be more. Raises what `take` raises, too.
        """
        ...

    async def read(self, limit: int) -> bytes: ...

    def arrived(self) -> bytes:
        """Of a body whose `read` failed, what had come until then."""
        ...

    def part(self) -> bool:
        """Tell the backend that nobody listens any more, and go on taking what it has sent until it notices. False:
        that cannot be told without losing what is on its way.
        """
        ...

    async def aclose(self) -> None:
        """Before the end: hang up, so that the backend stops working at once."""
        ...


class Kind(Protocol):
    """One kind of backend, opened for one entry of `backends:`."""

    dialect: DialectName
    fetches: bool
    """Would it fetch, from inside the gateway, what a request names by its address?"""

    @property
    def secret(self) -> str:
        """The credential that it sends now, which no message may carry; empty without one."""
        ...

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        """Path and query of a call, below the backend's base URL."""
        ...

    def send(self, call: Call) -> Awaitable[Upstream]:
        """The response once its head is there, whatever its status. Raises BackendErrors."""
        ...

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """How long the backend asks to be left alone."""
        ...
