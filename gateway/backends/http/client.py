"""Interface of the HTTP client, and the choice of the implementation for a base URL."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Protocol

from gateway.backends.http.pool import PooledClient
from gateway.backends.http.wire import Origin
from gateway.domain.answer import Sink
from gateway.settings.environment import proxy_for

IDLE_TIMEOUT_S = 30.0

"""Seconds after which an idle connection is closed."""


class Response(Protocol):
    """A response whose body may still be arriving. Iterate over it or `read` it, in one task; always call `aclose`."""

    status: int
    headers: list[tuple[bytes, bytes]]
    """The header fields. Names are in lower case."""
    whole: bool
    """Whether all of the body has arrived."""

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header `name` (lower case); None if it is missing."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield pieces of the body as they arrive. Raises StreamBroken (cut off), BackendTimeout, BackendGarbage."""
        ...

    async def pipe_to(self, take: Sink) -> bool:
        """Pass each piece to `take` as it arrives, without waking the reading task.

        Returns True once `take` has returned False, and False at the end of the body. Raises the errors of iterating.
        """
        ...

    async def read(self, limit: int) -> bytes:
        """Return the whole body. Raises BackendGarbage if the body exceeds `limit` bytes, and the errors of
        iterating."""
        ...

    def arrived(self) -> bytes:
        """The part of the body that arrived before `read` failed."""
        ...

    def half_close(self) -> bool:
        """Close only the sending direction of the connection. The backend sees that the client sends no more, and the
        data that the backend has sent still arrives.

        Returns False if the connection is encrypted or closed, because then it cannot be closed in one direction.
        """
        ...

    async def aclose(self) -> None:
        """Release the connection. If the body is incomplete, close the connection at once, so that the backend notices
        that the client is gone."""
        ...


class HttpClient(Protocol):
    """The HTTP connections to one backend."""

    async def request(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        deadline: float,
        first_byte_timeout: float,
    ) -> Response:
        """Send a request to `path` below the base URL. Returns the response when the response head has arrived,
        whatever its status is.

        The first byte of the body must arrive within `first_byte_timeout` seconds. These seconds include the wait in
        the queue and the time to connect. The whole response must arrive before `deadline` (loop time). Redirects are
        not followed. The methods HEAD and CONNECT are not supported. Raises BackendUnreachable, BackendTimeout,
        BackendGarbage.
        """
        ...

    def opening(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The part of the request head that is equal for all POST requests to `path` with `headers`. The caller passes
        the result to `post`. Raises BackendUnreachable if a header contains invalid characters."""
        ...

    def post(
        self, opening: bytes, body: bytes, *, deadline: float, first_byte_timeout: float, stall_timeout: float
    ) -> Awaitable[Response]:
        """Send a POST request. It has the errors and timeouts of the method `request`, and one more timeout:
        `stall_timeout` is the maximum number of seconds between two pieces of the body. `opening`: the result of the
        method `opening`; the caller may append complete header lines to it."""
        ...

    async def aclose(self) -> None:
        """Close all connections at once. Requests in progress fail."""
        ...

    def stats(self) -> dict[str, int]: ...


def connect(
    base_url: str,
    *,
    concurrent: int,
    name: str,
    tls: ssl.SSLContext | None = None,
    idle_timeout_s: float = IDLE_TIMEOUT_S,
    aiohttp: bool = False,
    socket_path: str = "",
) -> HttpClient:
    """Create a client for `base_url` with at most `concurrent` connections. `name` is the backend's name in errors.

    Returns the gateway's own client, or the aiohttp client if the environment configures a proxy for this URL or
    `aiohttp` is true. `tls` replaces the system's trusted certificates. `socket_path`: the Unix socket to connect to
    instead of the URL's host and port. Raises ValueError for an invalid URL.
    """
    origin = Origin.parse(base_url)
    if origin.tls and tls is None:
        tls = ssl.create_default_context()
    proxy = "" if socket_path else proxy_for(base_url)
    if proxy or aiohttp:
        from gateway.backends.http.aiohttp_client import AiohttpClient  # the import costs 0.2 s and 15 MB

        return AiohttpClient(origin, concurrent=concurrent, name=name, tls=tls, proxy=proxy)
    return PooledClient(
        origin, concurrent=concurrent, name=name, tls=tls, idle_timeout_s=idle_timeout_s, socket_path=socket_path
    )
