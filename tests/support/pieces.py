"""Reads an answer piece by piece: a piece is read only when the iterator is asked for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from gateway.domain.answer import Sink
from gateway.pipeline import Reply


class Piped(Protocol):
    async def pipe_to(self, take: Sink) -> bool: ...


async def pieces_of(source: Piped) -> AsyncIterator[bytes]:
    """All pieces before the ending."""
    taken: list[bytes] = []

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return False

    while await source.pipe_to(take):
        yield taken.pop()


async def with_ending(reply: Reply) -> AsyncIterator[bytes]:
    async for piece in pieces_of(reply):
        yield piece
    yield reply.ending
