"""Adds headers to each answer: request id, CORS, content coding."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.response_headers import of_id
from gateway.api.server.asgi import Headers, by_name
from gateway.api.server.caller import Caller, Wrapped
from gateway.api.server.compression import VARY, Compression, Encoded, chosen, encoded, worth_it
from gateway.api.server.cors import Cors, shared
from gateway.domain.record import new_request_id
from gateway.runtime.codings import Coding, Encoder, encoder

REQUEST_ID = "thriftgate.request_id"
"""Key in the ASGI scope that contains the request's id, for error bodies."""


class Envelope:
    """Wraps callers of inference and the ASGI application of all other routes."""

    def __init__(self, cors: Cors, compression: Compression) -> None:
        self._cors, self._compression = cors, compression

    def around(self, caller: Caller, headers: Mapping[bytes, bytes]) -> Caller:
        """Wrap a caller whose request has `accept-encoding` or `origin`. Other callers are returned unchanged."""
        if (accept := headers.get(b"accept-encoding")) and (coding := chosen(accept, self._compression)):
            caller = Encoded(caller, coding)
        if origin := headers.get(b"origin"):
            caller = Shared(caller, self._cors.headers(origin))
        return caller

    def asgi(self, app: ASGIApp, methods: Callable[[str], str]) -> ASGIApp:
        """An application that adds headers to the answers of `app`, and answers OPTIONS requests. `methods`: returns
        the methods of a path, in the format of the header `Allow`."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            scope[REQUEST_ID] = request_id = new_request_id()
            asked, more = by_name(scope["headers"]), of_id(request_id)
            if shared(scope["path"]):
                if scope["method"] == "OPTIONS":
                    head = [*more, *self._cors.preflight(asked, methods(scope["path"]).encode())]
                    await send({"type": "http.response.start", "status": 204, "headers": head})
                    await send({"type": "http.response.body"})
                    return
                if origin := asked.get(b"origin"):
                    more += self._cors.headers(origin)
            accept = asked.get(b"accept-encoding")
            coding = chosen(accept, self._compression) if accept and scope["method"] != "HEAD" else None
            await app(scope, receive, _Sending(send, more, coding))

        return answer


class Shared(Wrapped):
    """A caller that adds CORS headers to its answers."""

    def __init__(self, caller: Caller, more: Headers) -> None:
        super().__init__(caller)
        self._more = more

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        await self._caller.whole(status, [*headers, *self._more], body, pause_s=pause_s)

    def begin(self, headers: Headers) -> None:
        self._caller.begin([*headers, *self._more])


class _Sending:
    """An ASGI `send` that adds headers to an answer, and encodes the body if encoding makes it smaller."""

    def __init__(self, send: Send, more: Headers, coding: Coding | None) -> None:
        self._send, self._more, self._coding = send, more, coding
        self._start: Message | None = None
        self._encoder: Encoder | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            known = {name.lower() for name, _ in headers}
            headers += [pair for pair in self._more if pair[0] not in known or pair[0] == b"vary"]
            self._start = {**message, "headers": headers}
            return
        if self._start is not None:
            start, self._start = self._start, None
            if self._coding and start["status"] == 200 and message["type"] == "http.response.body":
                message = await self._encode(start, message, self._coding)
            await self._send(start)
        elif self._encoder is not None:
            message = self._encoded(message, self._encoder)
        await self._send(message)

    async def _encode(self, start: Message, message: Message, coding: Coding) -> Message:
        headers: Headers = start["headers"]
        size = next((int(value) for name, value in headers if name == b"content-length"), None)
        headers.append(VARY)
        if not worth_it(headers, size):
            return message
        headers.append((b"content-encoding", coding.encode()))
        start["headers"] = headers = [pair for pair in headers if pair[0] not in (b"content-length", b"accept-ranges")]
        if message.get("more_body"):
            self._encoder = encoder(coding)
            return self._encoded(message, self._encoder)
        body = await encoded(message.get("body", b""), coding)
        headers.append((b"content-length", b"%d" % len(body)))
        return {**message, "body": body}

    @staticmethod
    def _encoded(message: Message, writing: Encoder) -> Message:
        write = writing.piece if message.get("more_body") else writing.last
        return {**message, "body": write(message.get("body", b""))}
