"""Converts answers for client dialects that differ from another dialect only in the wire format."""

from __future__ import annotations

from gateway.api.server.asgi import Headers
from gateway.api.server.caller import Caller, Wrapped
from gateway.dialects.client import ClientDialect
from gateway.dialects.framing import Framing
from gateway.errors import BackendGarbage


class Reframed(Wrapped):
    """A caller that converts each answer to the wire format of the client's dialect. An error before the beginning of
    an answer is sent unchanged."""

    def __init__(self, caller: Caller, dialect: ClientDialect, framing: Framing) -> None:
        super().__init__(caller)
        self._dialect, self._framing = dialect, framing

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        if 200 <= status < 300:
            try:
                body = self._framing.plain(body)
            except (AttributeError, LookupError, TypeError, ValueError):  # the backend's fields may be of any type
                error = BackendGarbage("The backend's answer does not fit the form of this API.")
                status = self._dialect.status(error)
                body = self._dialect.error_body(error, dict(headers)[b"x-request-id"].decode())
        await self._caller.whole(status, headers, body, pause_s=pause_s)

    def begin(self, headers: Headers) -> None:
        others = [pair for pair in headers if pair[0] != b"content-type"]
        self._caller.begin([(b"content-type", self._framing.content_type), *others])

    def put(self, piece: bytes) -> bool:
        converted = self._framing.stream(piece)
        return self._caller.put(converted) if converted else True

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        await self._caller.end(self._framing.stream(last), broken=broken)
