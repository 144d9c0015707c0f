"""HTTP client based on aiohttp, used for proxies. Imported only if a proxy is configured.

The client opens one connection per request. On a reused connection, aiohttp would read bytes that arrived while the
connection was idle, and use them as the next answer.
"""

from __future__ import annotations

import asyncio
import io
import math
import ssl
from collections.abc import Sequence
from typing import Any, Self

import aiohttp
from yarl import URL

from gateway.backends.http.coding import DecodedBody
from gateway.backends.http.unreachable import unreachable
from gateway.backends.http.wire import MAX_HEAD_BYTES, Origin, check_head
from gateway.domain.answer import Sink
from gateway.errors import BackendError, BackendGarbage, BackendTimeout, BackendUnreachable, StreamBroken

_CONNECT_S = 10.0
_GLANCE_S = 0.25
"""Interval in seconds for checking whether the connection was lost. The check is needed because aiohttp does not wake a
reader after a malformed chunk."""
_ONE_WRITE_BYTES = 2**20 - 1
"""Maximum body size in bytes for a single write. aiohttp warns about a larger body unless the body is passed as a file.
"""
_MOST_HEADERS = 1024


class AiohttpResponse:
    """Implements `client.Response` with aiohttp."""

    def __init__(
        self, response: aiohttp.ClientResponse, name: str, limit: float, deadline: float, stall_timeout: float
    ) -> None:
        self.status = response.status
        self.headers = [(key.lower(), value) for key, value in response.raw_headers]
        self._response = response
        self._name = name
        self._limit = limit
        self._deadline = deadline
        self._stall_s = stall_timeout
        self.whole = False
        self._unpacking: DecodedBody | None = None
        self._pieces: list[bytes] = []

    def unpack(self) -> None:
        """Decode the body while it is read. Raises BackendGarbage for an unknown coding."""
        self._unpacking = DecodedBody(self.headers, self._name)

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header `name` (lower case); None if it is missing."""
        return next((value for key, value in self.headers if key == name), None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The bytes that arrived since the last call. Raises StreamBroken, BackendTimeout, BackendGarbage."""
        unpacking, data = self._unpacking, b""
        while not data:  # the first bytes of an encoded body may decode to nothing
            data = await self._arrived()
            if not data:
                self._end()
            if unpacking is not None:
                data = unpacking.feed(data)
        return data

    def _end(self) -> None:
        if self._unpacking is not None:
            self._unpacking.end()
        self.whole = True
        raise StopAsyncIteration

    async def _arrived(self) -> bytes:
        """The next undecoded bytes; empty at the end of the body."""
        content = self._response.content
        if self._response.closed and not content.is_eof():
            raise StreamBroken(f"the answer of {self._name} was not read to its end", backend=self._name)
        try:
            data = await self._readany()
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            self._response.close()
            raise _broken(error, self._name, finishing=self._limit >= self._deadline) from error
        self._limit = min(self._deadline, asyncio.get_running_loop().time() + self._stall_s)
        return data

    async def _readany(self) -> bytes:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(min(self._limit, loop.time() + _GLANCE_S)):
                    return await self._response.content.readany()
            except TimeoutError:
                connection = self._response.connection
                if connection is not None and connection.transport is None:
                    raise ConnectionAbortedError("the connection is gone") from None
                if loop.time() >= self._limit:
                    raise

    async def pipe_to(self, take: Sink) -> bool:
        """Pass each piece of the body to `take` as it arrives, until `take` returns False. Returns True if the body may
        have more data, and False at its end. Raises the errors of iterating."""
        async for piece in self:
            if not take(piece):
                return True
        return False

    async def read(self, limit: int) -> bytes:
        """Return the whole body. Raises BackendGarbage if it exceeds `limit` bytes, and the errors of iterating."""
        pieces, size = self._pieces, 0
        async for piece in self:
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                await self.aclose()
                raise BackendGarbage(f"{self._name} sent more than the {limit} bytes allowed", backend=self._name)
        return b"".join(pieces)

    def arrived(self) -> bytes:
        """The part of the body that arrived before `read` failed."""
        return b"".join(self._pieces)

    def half_close(self) -> bool:
        """Returns False, because aiohttp can only close both directions at once."""
        return False

    async def aclose(self) -> None:
        """Release the connection. If the body is incomplete, close it at once, so that the backend notices."""
        self._response.close()


class AiohttpClient:
    """Implements `client.HttpClient` with aiohttp. `proxy`: the http or https URL of the proxy, or "" for no proxy."""

    def __init__(
        self,
        origin: Origin,
        *,
        concurrent: int,
        name: str,
        tls: ssl.SSLContext | None,
        proxy: str = "",
    ) -> None:
        self.name = name
        self._origin = origin
        self._proxy = proxy
        self._root = f"{'https' if origin.tls else 'http'}://{origin.authority.decode('ascii')}"
        self._connector: dict[str, Any] = {
            "limit": concurrent,
            "force_close": True,
            "ssl": tls if tls is not None else True,
        }
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._busy = self._requests = 0

    def stats(self) -> dict[str, int]:
        """The number of requests in progress, and the number of all requests since the start."""
        return {"busy": self._busy, "requests": self._requests}

    async def request(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        deadline: float,
        first_byte_timeout: float,
    ) -> AiohttpResponse:
        """Send a request and return the response when its head has arrived. The parameters and errors are those of
        `HttpClient.request`."""
        opening = self._origin.opening(method, path, headers)
        return await self._exchange(method, path, opening, body, deadline, first_byte_timeout, math.inf)

    def opening(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The header lines that are equal for all POST requests to `path`, after a line with the path. Pass the result
        to `post`, which reads the path from this line."""
        return path.encode() + b"\n" + self._origin.opening("POST", path, headers)

    async def post(
        self, opening: bytes, body: bytes, *, deadline: float, first_byte_timeout: float, stall_timeout: float
    ) -> AiohttpResponse:
        """Send a POST request and return the response when its head has arrived. The parameters and errors are those of
        `HttpClient.post`."""
        path, _, opening = opening.partition(b"\n")
        return await self._exchange("POST", path.decode(), opening, body, deadline, first_byte_timeout, stall_timeout)

    async def _exchange(
        self,
        method: str,
        path: str,
        opening: bytes,
        body: bytes,
        deadline: float,
        first_byte_timeout: float,
        stall_timeout: float,
    ) -> AiohttpResponse:
        limit = min(deadline, asyncio.get_running_loop().time() + first_byte_timeout)
        lines = opening.decode("latin-1").split("\r\n")[1:-1]
        if body or method != "GET":
            lines.append(f"content-length: {len(body)}")
        fields = [tuple(line.split(": ", 1)) for line in lines]
        self._requests += 1
        self._busy += 1
        try:
            response = await self._send(
                method, URL(self._root + self._origin.target(path), encoded=True), fields, body, limit
            )
        finally:
            self._busy -= 1
        answer = AiohttpResponse(response, self.name, limit, deadline, stall_timeout)
        try:
            _, encoded = check_head(answer.status, answer.headers, self.name)
            if encoded:
                answer.unpack()
        except BackendGarbage:
            await answer.aclose()
            raise
        return answer

    async def _send(
        self, method: str, url: URL, fields: list[Any], body: bytes, limit: float
    ) -> aiohttp.ClientResponse:
        """Send the request. Returns when the response head has arrived. Raises BackendError if no head arrives."""
        session = self._open()
        try:
            async with asyncio.timeout_at(limit):
                return await session.request(
                    method,
                    url,
                    headers=fields,
                    data=io.BytesIO(body) if len(body) > _ONE_WRITE_BYTES else body or None,
                    allow_redirects=False,
                    proxy=self._proxy or None,
                )
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if self._closed and task and not task.cancelling():  # aiohttp cancels waiting callers when it closes
                raise _failed(cancelled, self.name) from cancelled
            raise
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            raise _failed(error, self.name) from error

    async def aclose(self) -> None:
        """Drop all connections; requests in progress fail."""
        self._closed = True
        if self._session:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise BackendUnreachable(f"the connections to {self.name} were closed", backend=self.name)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(**self._connector),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("user-agent", "accept", "content-type"),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                max_line_size=MAX_HEAD_BYTES,
                max_field_size=MAX_HEAD_BYTES,
                max_headers=_MOST_HEADERS,
            )
        return self._session


def _failed(error: BaseException, name: str) -> BackendError:
    """The error for a request that failed before its response head arrived. The error contains no address, because
    clients see the error."""
    match error:
        case aiohttp.ServerTimeoutError():
            return BackendUnreachable(f"{name} cannot be reached: the connection was not made in time", backend=name)
        case TimeoutError():
            return BackendTimeout(f"{name} did not begin to answer in time", backend=name)
        case aiohttp.ClientHttpProxyError() | aiohttp.ClientProxyConnectionError():
            return BackendUnreachable(f"{name} cannot be reached: the proxy would not connect", backend=name)
        case aiohttp.ClientConnectorCertificateError():
            return unreachable(error.certificate_error, "its certificate is not trusted", name)
        case aiohttp.ClientConnectorSSLError():
            return BackendUnreachable(f"{name} cannot be reached: TLS could not be agreed on", backend=name)
        case aiohttp.ClientConnectorDNSError():
            return unreachable(error.os_error, "its name cannot be resolved", name)
        case aiohttp.ClientConnectorError():
            return unreachable(error.os_error, "the connection was refused", name)
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return BackendUnreachable(f"{name} closed the connection without an answer", backend=name)
        case aiohttp.ClientResponseError():
            return BackendGarbage(f"{name} sent something that is not HTTP", backend=name)
        case _:
            return BackendUnreachable(f"{name} cannot be reached", backend=name)


def _broken(error: Exception, name: str, *, finishing: bool) -> BackendError:
    """The error for a response that failed while its body was arriving. `finishing`: whether a part of the body has
    arrived. If so, the text of a timeout says that the answer did not finish in time; otherwise, that it did not begin
    in time."""
    if isinstance(error, TimeoutError):
        return BackendTimeout(f"{name} did not {'finish' if finishing else 'begin to answer'} in time", backend=name)
    return StreamBroken(f"{name} broke off in the middle of its answer", backend=name)
