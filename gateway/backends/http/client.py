"""Interface of the HTTP client, and the implementation that a base URL gets."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Protocol

from gateway.backends.http.pool import PooledClient
from gateway.backends.http.wire import Origin
from gateway.domain.answer import Sink
from gateway.settings.environment import proxy_for

IDLE_TIMEOUT_S = 30.0


class Response(Protocol):
    """A response whose body may still be coming. Iterate it or `read` it, in one task; always `aclose` it."""

    status: int
    headers: list[tuple[bytes, bytes]]
    """Names in lower case."""
    whole: bool
    """All of the body has arrived."""

    def header(self, name: bytes) -> bytes | None:
        """The first value of `name` (lower case)."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Body pieces as they arrive. Raises StreamBroken (cut), BackendTimeout, BackendGarbage."""
        ...

    async def pipe_to(self, take: Sink) -> bool:
        """The same without waking the reading task: `take` is handed each piece until it wants no more now (returns
        True) or the body ends (False).
        """
        ...

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises BackendGarbage when it is longer than `limit` bytes, and what iterating raises."""
        ...

    def arrived(self) -> bytes:
        """Of a body whose `read` failed, what had come until then."""
        ...

    def part(self) -> bool:
        """End our side of the connection alone: the backend sees the hang-up, and what it has sent still arrives.
        False: it is encrypted, or gone.
        """
        ...

    async def aclose(self) -> None:
        """Unless the body is whole, drop the connection at once, so that the backend sees the hang-up."""
        ...


class HttpClient(Protocol):
    """One backend's connections."""

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
        """Send `body` to `path` below the base URL; the response, once its head is there, whatever its status.

        The first body byte is due within `first_byte_timeout` seconds, waiting in line and connecting included; the
        end at `deadline` (loop time). Redirects are not followed. Not for HEAD or CONNECT. Raises BackendUnreachable,
        BackendTimeout, BackendGarbage.
        """
        ...

    def opening(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """What many POSTs to `path` have in common, for `post`. Raises BackendUnreachable when it cannot be framed."""
        ...

    def post(
        self, opening: bytes, body: bytes, *, deadline: float, first_byte_timeout: float, stall_timeout: float
    ) -> Awaitable[Response]:
        """As `request`; `opening` may be followed by more whole header lines. `stall_timeout`: the most seconds between
        two pieces of the body.
        """
        ...

    async def aclose(self) -> None:
        """Drop every connection; what is under way fails."""
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
) -> HttpClient:
    """A client for `base_url` that opens at most `concurrent` connections; `name` is what errors call the backend.

    Our own, or aiohttp's where the environment names a proxy for it or `aiohttp` asks. `tls` replaces the system's
    trust. Raises ValueError for a URL that is not one.
    """
    origin = Origin.parse(base_url)
    if origin.tls and tls is None:
        tls = ssl.create_default_context()
    proxy = proxy_for(base_url)
    if proxy or aiohttp:
        from gateway.backends.http.aiohttp_client import AiohttpClient  # 0.2 s and 15 MB that most never need

        return AiohttpClient(origin, concurrent=concurrent, name=name, tls=tls, proxy=proxy)
    return PooledClient(origin, concurrent=concurrent, name=name, tls=tls, idle_timeout_s=idle_timeout_s)
