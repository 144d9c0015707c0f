"""What providers that are reached over HTTP share."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from email.utils import parsedate_to_datetime

from gateway.backends.http.client import connect
from gateway.backends.providers.base import PATHS, Call, Upstream
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest, DialectName

_BETA = b"beta=true"
"""All of a query that is sent on: there might be a key in the rest."""
_TRACE = frozenset({b"traceparent", b"tracestate"})
"""They tell a third party which of its requests belong together, and to what; local servers continue the trace."""
_LONGEST_NUMBER = 64
"""Characters of a `Retry-After` that are read."""


class OverHttp:
    """One pooled client per backend. A subclass says which dialect it speaks, where a call goes (`url`), and how it
    proves who sends it (`sign`)."""

    dialect: DialectName
    fetches = False
    signs_bodies = False
    """Does `sign` depend on the body or the time? Then each call is signed; else the head of a call is used again."""

    def __init__(self, backend: Backend) -> None:
        self._client = connect(backend.base_url, concurrent=backend.concurrent, name=backend.name)
        self.secret = backend.api_key.get_secret_value() if backend.api_key else ""
        self._conceals_traces = backend.hosted
        self._openings: dict[tuple[DialectName, bool], bytes] = {}
        """Backend dialect and whether it streams → the head of a request whose client sends nothing of its own on."""

    async def open(self) -> None:
        """Connections are made when they are needed."""

    async def aclose(self) -> None:
        await self._client.aclose()

    def send(self, call: Call) -> Awaitable[Upstream]:
        request, wire = call.request, call.wire
        special = request.headers or request.query
        opening = None if special else self._openings.get((wire.backend, request.stream))
        if opening is None:
            opening = self._client.opening(self.url(request, wire), self.headers(request, wire, call.body))
            if not special and not self.signs_bodies and wire.backend in PATHS:
                self._openings[wire.backend, request.stream] = opening
        return self._client.post(
            opening + b"x-request-id: %b\r\n" % call.attempt_id.encode("ascii"),
            call.body,
            deadline=call.deadline,
            first_byte_timeout=call.first_byte_timeout,
            stall_timeout=call.stall_timeout,
        )

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        """Path and query below the base URL."""
        path = PATHS.get(wire.backend) or request.path
        if wire.client == wire.backend and _BETA in request.query.split(b"&"):
            path = f"{path}?{_BETA.decode()}"
        return path

    def sign(self, headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
        """`headers` with the backend's key as a bearer token, if it has one."""
        return [*headers, (b"authorization", b"Bearer " + self.secret.encode())] if self.secret else headers

    def forget_heads(self) -> None:
        """Sign anew from the next call on: the credential has changed."""
        self._openings.clear()

    def headers(self, request: CompletionRequest, wire: Translator, body: bytes) -> list[tuple[bytes, bytes]]:
        """Those of the dialect, signed, and of the client's those that this backend may know."""
        forwarded = wire.forwarded(request)
        if self._conceals_traces and not _TRACE.isdisjoint(request.headers):
            forwarded = [header for header in forwarded if header[0] not in _TRACE]
        return [*self.sign(wire.headers(request), body), *forwarded]

    def retry_after_s(self, upstream: Upstream) -> float | None:
        """`Retry-After`, in seconds or as a date."""
        value = (upstream.header(b"retry-after") or b"").decode("latin-1").strip()[:_LONGEST_NUMBER]
        if not value:
            return None
        if value.isascii() and value.replace(".", "", 1).isdigit():
            return float(value)
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except (ValueError, OverflowError, OSError):  # the last two: a date that no clock reaches
            return None
