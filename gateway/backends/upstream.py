"""What every kind of backend looks like to the rest of the room: something to send a call to, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from gateway.dialects.wire import Wire
from gateway.domain.request import CompletionRequest, DialectName


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one backend, its body already in the backend's dialect."""

    request: CompletionRequest
    wire: Wire
    body: bytes
    deadline: float
    """Loop time."""
    first_byte_timeout: float
    """Seconds."""
    request_deadline: float
    """Loop time; `deadline` is earlier where the backend's own `timeout` is."""

    secret: str = field(default="", repr=False)
    """The backend's key, which no message may carry."""

    def conceal(self, message: str) -> str:
        """`message` without the backend's key, should the backend have repeated it."""
        return message.replace(self.secret, "[key]") if self.secret else message

    @property
    def out_of_time(self) -> bool:
        """Is the request's own deadline over?"""
        return asyncio.get_running_loop().time() >= self.request_deadline


class Upstream(Protocol):
    """A response as it arrives. Iteration and `read` raise BackendErrors; `aclose` is safe to call twice."""

    status: int

    def header(self, name: bytes) -> bytes | None: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def read(self, limit: int) -> bytes: ...

    async def aclose(self) -> None:
        """Before the end: hang up, so that the backend stops working at once."""
        ...


class Kind(Protocol):
    """One kind of backend, opened for one entry of `backends:`."""

    dialect: DialectName

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    async def send(self, call: Call) -> Upstream:
        """The response once its head is there, whatever its status. Raises BackendErrors."""
        ...

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """How long the backend asks to be left alone."""
        ...
