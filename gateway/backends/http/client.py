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
    """A response whose body may still be arriving. Iterate over the response, or call `read`, in one task only. Always
    call `aclose` at the end."""

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

        Returns True if the body may have more data, and False at its end. Raises the same errors as iterating.
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
        """Close only the sending direction of the connection. Data that the backend has sent still arrives. Returns
        False if the connection is encrypted or closed; then nothing was done."""
        ...

    async def aclose(self) -> None:
        """Release the connection. If the body is incomplete, close it at once, so that the backend notices."""
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
        """Send a request to `path` below the base URL. Returns the response once its head has arrived, whatever the
        status. Redirects are not followed, and HEAD and CONNECT are not supported.

        `first_byte_timeout`: seconds until the first byte of the body, including queue and connecting. `deadline`: loop
        time before which the whole response must arrive. Raises BackendUnreachable, BackendTimeout, BackendGarbage.
        """
        ...

    def opening(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The part of the request head that is equal for all POST requests to `path`. Pass it to `post`. Raises
        BackendUnreachable if a header contains invalid characters."""
        ...

    def post(
        self, opening: bytes, body: bytes, *, deadline: float, first_byte_timeout: float, stall_timeout: float
    ) -> Awaitable[Response]:
        """Send a POST request, with the errors and timeouts of `request`. `stall_timeout`: maximum seconds between
        two pieces of the body.

        `opening`: result of the method `opening`, to which complete header lines may be appended.
        """
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
    """Create a client for `base_url` with at most `concurrent` connections. `name`: the backend's name in errors.
    Raises ValueError for an invalid URL.

    `tls`: replaces the system's trusted certificates. `aiohttp`: use aiohttp, as for URLs with a proxy.
    `socket_path`: a Unix socket in place of the URL's host and port.
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
