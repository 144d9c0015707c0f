"""Interface of a provider: it sends a call and returns the response."""

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

_MOST_ERROR_BYTES, _ERROR_BODY_S = 64 * 2**10, 2.0

PATHS: Mapping[DialectName, str] = {
    "openai_chat": "/chat/completions",
    "openai_responses": "/responses",
    "openai_completions": "/completions",
    "openai_embeddings": "/embeddings",
    "anthropic_messages": "/messages",
}
"""Backend dialect → path of its endpoint below the base URL. For dialects that are missing here, the provider's `url`
makes the path, from the model or from the path that the client asked for."""


@dataclass(slots=True)  # not frozen: that would triple the cost of building one per call
class Call:
    """One call of one backend. The body is in the backend's dialect. The call must not be changed after it was sent."""

    request: CompletionRequest
    wire: Translator
    body: bytes
    deadline: float
    """Loop time in seconds at which the call must be finished."""
    first_byte_timeout: float
    """Seconds until the first byte must arrive."""
    stall_timeout: float
    """Maximum seconds between two pieces of an answer."""
    request_deadline: float
    """Loop time in seconds at which the request must be finished. `deadline` is earlier if the backend's `timeout` ends
    before."""

    secret: str = field(default="", repr=False)
    """The backend's key, which must not appear in any message."""

    attempt_id: str = ""
    """Id of the ledger entry, set when the attempt is opened. It is sent to the backend, so that the provider's bill
    can be compared with the ledger."""

    def conceal(self, error: BackendError) -> None:
        """Remove the backend's key from texts of the backend in `error`."""
        if not self.secret:
            return
        conceal = Concealer(self.secret)
        error.message = conceal(error.message)
        error.args = (error.message,)
        for name in ("code", "kind", "param"):
            if (text := getattr(error, name)) and (concealed := conceal(text)) != text:
                setattr(error, name, concealed)

    @property
    def out_of_time(self) -> bool:
        """Whether the request's own deadline has passed."""
        return asyncio.get_running_loop().time() >= self.request_deadline


class Upstream(Protocol):
    """A response that may still be arriving. `pipe_to` and `read` raise BackendError. `aclose` may be called twice."""

    status: int
    whole: bool
    """Whether all of the body has arrived."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The header fields. Names are in lower case."""
        ...

    def header(self, name: bytes) -> bytes | None: ...

    async def pipe_to(self, take: Sink) -> bool:
        """Pass the body to `take`, piece by piece as it arrives, until `take` returns False or the body ends.

        Returns True if there may be more. Also raises the errors of `take`.
        """
        ...

    async def read(self, limit: int) -> bytes: ...

    def arrived(self) -> bytes:
        """The part of the body that had arrived when `read` failed."""
        ...

    def half_close(self) -> bool:
        """Tell the backend that the client has disconnected, but receive what the backend has already sent. Returns
        False if that is impossible without losing data."""
        ...

    async def aclose(self) -> None:
        """Release the response. Before its end, close the connection, so that the backend stops working."""
        ...


async def error_body(upstream: Upstream) -> bytes:
    """The body of an error response; empty if it arrives too late or is too long."""
    try:
        async with asyncio.timeout(_ERROR_BODY_S):
            return await upstream.read(_MOST_ERROR_BYTES)
    except (TimeoutError, BackendError):
        return b""


class Kind(Protocol):
    """A provider, for one entry of `backends:`."""

    dialect: DialectName
    fetches: bool
    """Whether it downloads URLs in a request itself, from inside the gateway."""

    @property
    def secret(self) -> str:
        """The credential in use, which must not appear in any message; empty if there is none."""
        ...

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        """Path and query of a call, relative to the backend's base URL."""
        ...

    def send(self, call: Call) -> Awaitable[Upstream]:
        """Send the call. Returns the response when its head has arrived, whatever its status is. Raises
        BackendError."""
        ...

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """Seconds for which the backend asks not to be called; None if it does not ask."""
        ...
