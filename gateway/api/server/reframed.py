"""Converts an answer to the form of a dialect that differs from another one only on the wire."""

from __future__ import annotations

from gateway.api.server.asgi import Headers
from gateway.api.server.caller import Caller, Wrapped
from gateway.dialects.framing import Framing


class Reframed(Wrapped):
    """A caller whose answers are converted. Errors before an answer's beginning are sent as they are."""

    def __init__(self, caller: Caller, framing: Framing) -> None:
        super().__init__(caller)
        self._framing = framing

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        if 200 <= status < 300:
            body = self._framing.plain(body)
        await self._caller.whole(status, headers, body, pause_s=pause_s)

    def begin(self, headers: Headers) -> None:
        others = [pair for pair in headers if pair[0] != b"content-type"]
        self._caller.begin([(b"content-type", self._framing.content_type), *others])

    def put(self, piece: bytes) -> bool:
        converted = self._framing.stream(piece)
        return self._caller.put(converted) if converted else True

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        await self._caller.end(self._framing.stream(last), broken=broken)
