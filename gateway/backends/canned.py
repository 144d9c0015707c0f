"""Responses that did not come over the gateway's own HTTP client: made here, or by a library that speaks for us."""

from __future__ import annotations

from collections.abc import AsyncIterator


class Canned:
    """Implements `Upstream` over a body that is already whole."""

    def __init__(self, status: int, body: bytes, headers: dict[bytes, bytes] | None = None) -> None:
        self.status = status
        self._body = body
        self._headers = headers or {}

    def header(self, name: bytes) -> bytes | None:
        return self._headers.get(name)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body

    async def read(self, limit: int) -> bytes:
        return self._body[:limit]

    async def aclose(self) -> None:
        """Nothing is open."""
