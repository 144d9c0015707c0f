"""Base class of answers whose bodies are converted to server-sent events while they arrive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gateway.backends.providers.base import Upstream
from gateway.domain.answer import Sink


class Converted(ABC):
    """Wraps an `Upstream` and converts its pieces with `_convert`. Bodies that are read whole are not converted."""

    def __init__(self, inner: Upstream) -> None:
        self.status, self.whole, self._inner = inner.status, inner.whole, inner

    @abstractmethod
    def _convert(self, piece: bytes) -> bytes:
        """Convert `piece`. Returns empty bytes if more pieces are needed first."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        return self._inner.headers

    def header(self, name: bytes) -> bytes | None:
        return self._inner.header(name)

    async def pipe_to(self, take: Sink) -> bool:
        def convert(piece: bytes) -> bool:
            converted = self._convert(piece)
            return take(converted) if converted else True

        more = await self._inner.pipe_to(convert)
        self.whole = self._inner.whole
        return more

    async def read(self, limit: int) -> bytes:
        return await self._inner.read(limit)

    def arrived(self) -> bytes:
        return self._inner.arrived()

    def half_close(self) -> bool:
        return self._inner.half_close()

    async def aclose(self) -> None:
        await self._inner.aclose()
