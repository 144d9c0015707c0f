"""Interface of a provider: it sends a call and returns the response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gateway.dialects.base import Translator
from gateway.domain.answer import Sink
from gateway.domain.protocols import Hold
from gateway.domain.record import Record
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
"""Backend dialect → path of the dialect's endpoint below the base URL. For other dialects, the provider's method `url`
makes the path from the model or from the path of the client's request."""


@dataclass(slots=True)  # not frozen: building a frozen instance would take three times as long
class Call:
    """One call of one backend. The body is in the backend's dialect. The call must not be changed after it was sent."""

    request: CompletionRequest
    wire: Translator
    body: bytes
    deadline: float
    """Loop time in seconds at which the call must be finished."""
    first_byte_timeout: float
    """Seconds within which the first byte must arrive."""
    stall_timeout: float
    """Maximum seconds between two pieces of an answer."""
    request_deadline: float
    """Loop time in seconds at which the request must be finished. `deadline` is earlier than `request_deadline` if the
    backend's `timeout` ends first."""

    secret: str = field(default="", repr=False)
    """The backend's key, which must not appear in any message."""

    attempt_id: str = ""
    """The id of the attempt's ledger entry, set when the attempt is opened. The id is sent to the backend, so that the
    provider's bill can be compared with the ledger."""

    record: Record | None = field(default=None, repr=False)
    hold: Hold | None = field(default=None, repr=False)
    """Record and held money of the request, set when the attempt is opened. A gateway upstream is told about them."""

    def conceal(self, error: BackendError) -> None:
        """Remove the backend's key from all texts in `error` that come from the backend."""
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
        """Pass the body to `take`, piece by piece, until `take` returns False or the body ends. Returns True if the
        body may have more pieces. Raises BackendError, and the errors of `take`."""
        ...

    async def read(self, limit: int) -> bytes: ...

    def arrived(self) -> bytes:
        """The part of the body that arrived before `read` failed."""
        ...

    def half_close(self) -> bool:
        """Close the sending direction, which tells the backend that the client has disconnected. Data that was sent
        still arrives. Returns False if that is impossible or would lose data."""
        ...

    async def aclose(self) -> None:
        """Release the response. If the response has not ended, close the connection, so that the backend stops
        working."""
        ...


async def error_body(upstream: Upstream) -> bytes:
    """The body of an error response; empty if the body arrives too late or is too long."""
    try:
        async with asyncio.timeout(_ERROR_BODY_S):
            return await upstream.read(_MOST_ERROR_BYTES)
    except (TimeoutError, BackendError):
        return b""


class Kind(Protocol):
    """The interface of a provider. One instance serves one entry of `backends:` in gateway.yaml."""

    dialect: DialectName
    fetches: bool
    """Whether the provider's library downloads URLs in a request itself, from inside the gateway's network."""

    @property
    def secret(self) -> str:
        """The credential in use, which must not appear in any message. Empty if the provider has none."""
        ...

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        """Path and query of a call, relative to the backend's base URL."""
        ...

    def send(self, call: Call) -> Awaitable[Upstream]:
        """Send the call. Returns the response when its head has arrived, whatever its status is. Raises BackendError if
        no head arrives."""
        ...

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """Seconds for which the backend asks not to be called; None if the response does not ask for a pause."""
        ...
