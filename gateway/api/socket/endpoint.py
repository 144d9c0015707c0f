"""The endpoint of Responses on WebSockets: authenticates the handshake, and serves each socket."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from gateway.api.response_headers import of_error, of_id
from gateway.api.routes.inference import JSON, Inference
from gateway.api.server.asgi import Headers, by_name
from gateway.api.socket.session import Session, Space
from gateway.dialects.clients import CLIENTS
from gateway.domain.record import new_request_id
from gateway.errors import GatewayError, Overloaded
from gateway.runtime.off_loop import OffLoop
from gateway.runtime.tasks import Tasks
from gateway.settings.gateway import RequestLimits

PATHS = frozenset(CLIENTS["openai_responses"].paths)
_DIALECT = CLIENTS["openai_responses"].dialect
_OF_HANDSHAKE = (b"sec-websocket-", b"content-", b"accept-encoding", b"origin")
"""Prefixes of headers that do not belong to the requests on the socket."""
_OF_ONE_REQUEST = frozenset({b"upgrade", b"connection", b"idempotency-key", b"expect", b"transfer-encoding"})


class ResponsesSockets:
    """Serves the requests on sockets through the inference endpoint. Keys, limits, budgets and ledger work as for
    HTTP."""

    def __init__(self, inference: Inference, limits: RequestLimits, off_loop: OffLoop) -> None:
        self._inference, self._limits, self._off_loop = inference, limits, off_loop
        self._leaving = asyncio.Event()
        self._space = Space()
        self._turns = Tasks()
        self._open = 0

    def leave(self) -> None:
        """Close all sockets. A socket on which an answer is in progress is closed after this answer."""
        self._leaving.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = [(name.lower(), value) for name, value in scope["headers"]]
        named = by_name(headers)
        await receive()  # the handshake
        try:
            await self._inference.authenticate(named)
            if self._open >= self._limits.concurrent or self._leaving.is_set():
                raise Overloaded("No more sockets are opened now; use HTTP, or try again shortly.", retry_after_s=1.0)
        except GatewayError as error:
            await _refuse(scope, send, error)
            return
        await send({"type": "websocket.accept"})
        session = Session(
            scope["path"],
            _of_requests(headers),
            receive,
            send,
            serve=self._inference.answer,
            admit=lambda: self._inference.authenticate(named),
            dialect=_DIALECT,
            limits=self._limits,
            leaving=self._leaving,
            turns=self._turns,
            off_loop=self._off_loop,
            space=self._space,
        )
        self._open += 1
        try:
            await session.run()
        finally:
            self._open -= 1

    async def aclose(self) -> None:
        await self._turns.aclose()


def _of_requests(headers: Headers) -> Headers:
    kept = [pair for pair in headers if not pair[0].startswith(_OF_HANDSHAKE) and pair[0] not in _OF_ONE_REQUEST]
    return [*kept, *JSON]


async def _refuse(scope: Scope, send: Send, error: GatewayError) -> None:
    """Answer the handshake with an HTTP error."""
    request_id = new_request_id()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    headers = [*JSON, *of_error(error), *of_id(request_id)]
    status, body = _DIALECT.status(error), _DIALECT.error_body(error, request_id)
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
