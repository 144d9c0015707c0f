"""Responses that the gateway or a library has built, and that did not come over the gateway's HTTP client."""

from __future__ import annotations

from gateway.domain.answer import Sink


class Canned:
    """Implements `Upstream` over a body that is already complete."""

    def __init__(self, status: int, body: bytes, headers: dict[bytes, bytes] | None = None) -> None:
        self.status = status
        self.headers = list((headers or {}).items())
        self.whole = True
        self._body = body

    def header(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)

    async def pipe_to(self, take: Sink) -> bool:
        body, self._body = self._body, b""
        return bool(body) and not take(body)

    async def read(self, limit: int) -> bytes:
        return self._body[:limit]

    def arrived(self) -> bytes:
        return self._body

    def half_close(self) -> bool:
        return False

    async def aclose(self) -> None:
        """Does nothing: no connection is open."""
