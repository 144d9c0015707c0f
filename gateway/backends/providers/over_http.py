"""What providers that are reached over HTTP share."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from email.utils import parsedate_to_datetime

from gateway.backends.http.client import connect
from gateway.backends.providers.base import Call, Upstream
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
    """One pooled client per backend; the dialect is the subclass's."""

    dialect: DialectName
    fetches = False

    def __init__(self, backend: Backend) -> None:
        self._client = connect(backend.base_url, concurrent=backend.concurrent, name=backend.name)
        self._key = backend.api_key.get_secret_value() if backend.api_key else None
        self._conceals_traces = backend.hosted
        self._openings: dict[tuple[str, bool], bytes] = {}
        """Path and whether it streams → the head of a request whose client sends nothing of its own on."""

    async def open(self) -> None:
        """Connections are made when they are needed."""

    async def aclose(self) -> None:
        await self._client.aclose()

    def send(self, call: Call) -> Awaitable[Upstream]:
        request, wire = call.request, call.wire
        special = request.headers or request.query
        opening = None if special else self._openings.get((wire.path, request.stream))
        if opening is None:
            path = wire.path or request.path
            if wire.client == wire.backend and _BETA in request.query.split(b"&"):
                path = f"{path}?{_BETA.decode()}"
            opening = self._client.opening(path, self.headers(request, wire))
            if not special:
                self._openings[wire.path, request.stream] = opening
        return self._client.post(
            opening + b"x-request-id: %b\r\n" % call.attempt_id.encode("ascii"),
            call.body,
            deadline=call.deadline,
            first_byte_timeout=call.first_byte_timeout,
            stall_timeout=call.stall_timeout,
        )

    def headers(self, request: CompletionRequest, wire: Translator) -> list[tuple[bytes, bytes]]:
        """As the dialect has them, of the client's only what this backend may know."""
        found = wire.headers(request, self._key)
        if self._conceals_traces and not _TRACE.isdisjoint(request.headers):
            return [header for header in found if header[0] not in _TRACE]
        return found

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
