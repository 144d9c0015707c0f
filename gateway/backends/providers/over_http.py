"""Base class of providers that are called over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from email.utils import parsedate_to_datetime

from gateway.backends.http.client import HttpClient, connect
from gateway.backends.providers.base import PATHS, Call, Upstream
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.whereabouts import providers_own

_BETA = b"beta=true"
"""The only part of the query of the client's request that is forwarded. The rest may contain a key."""
_TRACE = frozenset({b"traceparent", b"tracestate"})
"""Trace headers. Hosted providers do not get these headers, because the headers show which requests belong together."""
_MOST_LIST_BYTES = 8 * 2**20
_LONGEST_NUMBER = 64
"""Maximum characters of a `Retry-After` header. A longer header is ignored."""


class OverHttp:
    """A provider with one pooled client per backend. A subclass defines the dialect, the address of calls (`url`) and
    their authentication (`sign`)."""

    dialect: DialectName
    fetches = False
    models_path: str | None = "/models"
    """Path of the provider's list of models, which can be read free of charge. None: the provider has no list that can
    be read with only the key."""

    def __init__(self, backend: Backend, *, hop: str = "") -> None:
        """`hop`: the id of this gateway in the list of hops. It is not sent to servers of known providers."""
        self._client = self.connect(backend)
        self.secret = backend.api_key.get_secret_value() if backend.api_key else ""
        self._conceals_traces = backend.hosted
        self._hop = "" if providers_own(backend.base_url) else hop
        self._hops = b"x-thriftgate-hops: %b\r\n" % hop.encode("ascii")
        """The header line for a request that has passed no other gateway."""
        self._openings: dict[tuple[DialectName, bool], bytes] = {}
        """(Backend dialect, whether the answer is a stream) → request head. The stored heads are used for requests
        whose client sent no headers to forward."""

    def connect(self, backend: Backend) -> HttpClient:
        """The client for the backend's base URL. Raises ValueError for an invalid URL."""
        return connect(backend.base_url, concurrent=backend.concurrent, name=backend.name)

    async def open(self) -> None:
        """Does nothing, because connections are opened on demand."""

    async def aclose(self) -> None:
        await self._client.aclose()

    def send(self, call: Call) -> Awaitable[Upstream]:
        """Send the call as a POST request. Returns the response when its head has arrived. Raises BackendError."""
        request, wire = call.request, call.wire
        special = request.headers or request.query
        opening = None if special else self._openings.get((wire.backend, request.stream))
        if opening is None:
            opening = self._client.opening(self.url(request, wire), self.headers(request, wire, call.body))
            if not special and wire.backend in PATHS:
                self._openings[wire.backend, request.stream] = opening
        return self._client.post(
            opening + self.lines(call),
            call.body,
            deadline=call.deadline,
            first_byte_timeout=call.first_byte_timeout,
            stall_timeout=call.stall_timeout,
        )

    def lines(self, call: Call) -> bytes:
        """The header lines that differ from call to call."""
        line = b"x-request-id: %b\r\n" % call.attempt_id.encode("ascii")
        if hop := self._hop:  # the address may lead back to this gateway, which then refuses the call
            passed = call.request.controls.hops
            line += b"x-thriftgate-hops: %b\r\n" % ",".join((*passed, hop)).encode("ascii") if passed else self._hops
        return line

    async def look(self, within_s: float) -> tuple[int, bytes]:
        """Read the list of models, in at most `within_s` seconds. Returns the status and the body. If `models_path` is
        None, requests `/` instead, without the key. Raises BackendError."""
        headers = [(b"accept", b"application/json")]
        if self.dialect == "anthropic_messages":
            headers.append((b"anthropic-version", b"2023-06-01"))
        if self.models_path is not None:
            headers = self.sign(headers, b"")
        until = asyncio.get_running_loop().time() + within_s
        response = await self._client.request(
            "GET", self.models_path or "/", headers, b"", deadline=until, first_byte_timeout=within_s
        )
        try:
            return response.status, await response.read(_MOST_LIST_BYTES)
        finally:
            await response.aclose()

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        """Path and query of a call, below the base URL."""
        path = PATHS.get(wire.backend) or request.path
        if wire.client == wire.backend and _BETA in request.query.split(b"&"):
            path = f"{path}?{_BETA.decode()}"
        return path

    def sign(self, headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
        """Return `headers` with the backend's key as a bearer token. Without a key, the headers do not change."""
        return [*headers, (b"authorization", b"Bearer " + self.secret.encode())] if self.secret else headers

    def forget_heads(self) -> None:
        """Discard the cached request heads, because the credential has changed."""
        self._openings.clear()

    def headers(self, request: CompletionRequest, wire: Translator, body: bytes) -> list[tuple[bytes, bytes]]:
        """All headers of a request: those of the dialect, the authentication, and the client's headers for this
        backend.
        """
        forwarded = wire.forwarded(request)
        if self._conceals_traces and not _TRACE.isdisjoint(request.headers):
            forwarded = [header for header in forwarded if header[0] not in _TRACE]
        return [*self.sign(wire.headers(request), body), *forwarded]

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """The value of the header `Retry-After` in seconds; a date is converted to seconds. None if the header is
        missing or unreadable."""
        value = (upstream.header(b"retry-after") or b"").decode("latin-1").strip()[:_LONGEST_NUMBER]
        if not value:
            return None
        if value.isascii() and value.replace(".", "", 1).isdigit():
            return float(value)
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except (ValueError, OverflowError, OSError):  # OverflowError, OSError: the date is out of range
            return None
