"""What the local stand-ins of the clouds share: scripted answers, and streams that arrive piece by piece."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.http_server import HttpServer


@dataclass(frozen=True)
class Refuse:
    """An error. `name`: of the exception, for services that name it in a header."""

    status: int
    body: Any
    name: str = ""


@dataclass(frozen=True)
class Pieces:
    """A stream of these bytes, then its end. `cut`: the connection breaks instead. `every_s`: pause after a piece."""

    pieces: tuple[bytes, ...]
    cut: bool = False
    every_s: float = 0.0


@dataclass(frozen=True)
class Body:
    """A plain answer."""

    value: Any


Step = Refuse | Pieces | Body


@dataclass
class Scripted(HttpServer):
    """Takes one step for each call that it admits; without steps it answers as always."""

    steps: deque[Step] = field(default_factory=deque, init=False)

    def script(self, *steps: Step) -> None:
        self.steps.extend(steps)

    def next_step(self) -> Step | None:
        return self.steps.popleft() if self.steps else None

    async def stream(
        self, request: web.Request, kind: str, step: Step | None, usual: Iterable[bytes]
    ) -> web.StreamResponse:
        """The pieces of `step`, or the `usual` ones; `kind`: the content type."""
        script = step if isinstance(step, Pieces) else Pieces(tuple(usual))
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        for piece in script.pieces:
            await response.write(piece)
            await asyncio.sleep(script.every_s)
        if script.cut:
            await asyncio.sleep(0.05)
            assert request.transport is not None
            request.transport.abort()
        return response
