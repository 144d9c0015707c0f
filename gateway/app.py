"""One worker as an ASGI application. Any ASGI server can serve it as `gateway.app:app`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from gateway.api.auth import error_response
from gateway.api.routes.admin import Admin
from gateway.api.routes.alerts import AlertRoutes
from gateway.api.routes.batches import BatchRoutes
from gateway.api.routes.count_tokens import CountRoutes
from gateway.api.routes.drains import DrainRoutes
from gateway.api.routes.inference import Inference
from gateway.api.routes.message_batches import MessageBatchRoutes
from gateway.api.routes.model_views import ModelViews
from gateway.api.routes.models import ModelRoutes
from gateway.api.routes.openapi import OpenApiRoute
from gateway.api.routes.responses import ResponseRoutes
from gateway.api.routes.service import ServiceRoutes
from gateway.api.server.asgi import Pace
from gateway.api.server.cors import Cors
from gateway.api.server.envelope import Envelope
from gateway.api.server.upload import Uploads
from gateway.api.socket.endpoint import PATHS as SOCKET_PATHS
from gateway.api.socket.endpoint import ResponsesSockets
from gateway.dialects.clients import at
from gateway.errors import MethodNotAllowed, NotFound
from gateway.runtime.write_batcher import WriteBatcher
from gateway.settings.environment import variable
from gateway.settings.gateway import load_settings
from gateway.state.redis import own_socket
from gateway.wiring import Wiring, Worker


class Application:
    """The ASGI application of one worker. Requests to inference paths go to the inference endpoint, all other requests
    to Starlette."""

    def __init__(self, worker: Worker) -> None:
        self.wiring = Wiring(worker)
        self.failure: Exception | None = None
        """The exception with which opening the wiring failed; None if it has not failed."""
        self._inference: Inference | None = None
        self.sockets: ResponsesSockets | None = None
        """The endpoint for responses on WebSockets; None until the wiring is open."""
        self.outgoing: WriteBatcher | None = None
        """The batcher through which the server sends answers, if it has one. Set it before the start."""
        config = worker.settings.config
        self._envelope = Envelope(Cors(config.cors.origins), config.compression)
        self._service = Starlette(lifespan=self._lifespan, exception_handlers={404: not_found, 405: not_allowed})
        self._service.router.redirect_slashes = False  # a redirect would lead to whatever host the Host header names
        self._others = self._envelope.asgi(self._service, self._methods)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        wiring = self.wiring
        try:
            await wiring.open()
        except Exception as error:
            self.failure = error
            raise
        if self.outgoing is not None:
            wiring.journal.write_before(self.outgoing)
        try:
            self._inference = Inference(
                tenants=wiring.tenants,
                pipeline=wiring.pipeline,
                telemetry=wiring.telemetry,
                limits=wiring.worker.settings.config.requests,
                overload=wiring.overload,
                envelope=self._envelope,
                idempotency=wiring.idempotency,
                memory=wiring.memory,
                decoding=wiring.decoding,
                instance=wiring.instance,
            )
            limits = wiring.worker.settings.config.requests
            self.sockets = ResponsesSockets(self._inference, limits, wiring.off_loop)
            self._service.router.routes.extend(_routes(wiring))
            yield
            await self.sockets.aclose()
        finally:
            await wiring.aclose()

    def _methods(self, path: str) -> str:
        """The value of the `Allow` header for `path`. An unknown path gets all methods that any path of the gateway
        accepts.
        """
        if at(path):
            return "OPTIONS, POST"
        return allowed(self._service, path, "OPTIONS") or "DELETE, GET, HEAD, OPTIONS, POST"

    def endpoint(self, path: bytes) -> Inference | None:
        """The endpoint that answers a POST to `path`; None if Starlette answers it.

        A path with a final slash gets None, because only the ASGI entry point removes the slash.
        """
        return self._inference if path.isascii() and at(path.decode()) else None

    def socket_at(self, path: bytes) -> bool:
        """Whether clients can open a WebSocket at `path`."""
        return self.sockets is not None and path.decode("latin-1").removesuffix("/") in SOCKET_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, path = scope["type"], scope.get("path", "")
        if path.endswith("/"):
            path = _without_slash(path)
            scope = {**scope, "path": path}
        if kind == "http" and self._inference is not None and scope["method"] != "OPTIONS" and at(path):
            await self._inference(scope, receive, send if self.outgoing is None else self._booked(send))
        elif kind == "websocket" and self.sockets is not None and path in SOCKET_PATHS:
            await self.sockets(scope, receive, send if self.outgoing is None else self._booked(send))
        else:
            await self._others(scope, receive, send)

    def _booked(self, send: Send) -> Send:
        """Wrap `send` so that waiting lines of the journal are written to the file before each message is sent. Use it
        only for answers that are not sent through `WriteBatcher`."""

        async def booked(message: Message) -> None:
            self.wiring.journal.flush()
            await send(message)

        return booked


_OPERATORS = ("/admin", "/dashboard", "/metrics")


def _without_slash(path: str) -> str:
    """Remove the final slash that some clients append to a path. Paths for operators, such as /admin and /metrics, do
    not change.
    """
    return path if path == "/" or (path[:-1] != "/dashboard" and path.startswith(_OPERATORS)) else path[:-1]


def _routes(wiring: Wiring) -> list[Route]:
    """All routes except those for inference."""
    config = wiring.worker.settings.config
    uploads = Uploads(Pace.of_uploads(config.requests), wiring.decoding)
    found = [
        *ModelRoutes(authenticator=wiring.authenticator, fleet=wiring.fleet).routes,
        *ModelViews(authenticator=wiring.authenticator, fleet=wiring.fleet).routes,
        *ServiceRoutes(
            authenticator=wiring.authenticator,
            fleet=wiring.fleet,
            telemetry=wiring.telemetry,
            state=wiring.state,
            ring=wiring.ring,
            policies=wiring.policies,
            drain=wiring.drain,
            feedback=wiring.feedback,
            spend=wiring.spend,
            cache_wrong=wiring.cache.wrong,
            reported=wiring.flags.report,
            troubles=lambda: [*troubles(wiring.worker), *wiring.orphans.troubles()],
        ).routes,
        *wiring.dashboard.routes,
        *ResponseRoutes(authenticator=wiring.authenticator, responses=wiring.responses).routes,
        *BatchRoutes(authenticator=wiring.authenticator, files=wiring.files, jobs=wiring.jobs, uploads=uploads).routes,
        *MessageBatchRoutes(
            authenticator=wiring.authenticator,
            files=wiring.files,
            jobs=wiring.message_jobs,
            uploads=uploads,
            max_request_bytes=config.requests.max_body_bytes,
        ).routes,
        *CountRoutes(
            authenticator=wiring.authenticator,
            counter=wiring.counter,
            fleet=wiring.fleet,
            limits=config.requests,
            off_loop=wiring.off_loop,
            decoding=wiring.decoding,
        ).routes,
    ]
    if config.admin_api:
        found += [
            *Admin(
                authenticator=wiring.authenticator,
                fleet=wiring.fleet,
                database=wiring.database,
                policies=wiring.policies,
                spend=wiring.spend,
            ).routes,
            *AlertRoutes(authenticator=wiring.authenticator, database=wiring.database, clock=time).routes,
            *DrainRoutes(authenticator=wiring.authenticator, fleet=wiring.fleet, database=wiring.database).routes,
        ]
    found += OpenApiRoute(found).routes
    return found


def troubles(worker: Worker) -> list[str]:
    """Sentences about problems with workers and with restarts, from a file that the supervisor writes. Empty if
    there is no supervisor.
    """
    try:
        return list(orjson.loads(worker.settings.paths.runtime.read_bytes()).get("troubles", ()))
    except (OSError, ValueError):  # no supervisor runs
        return []


async def not_found(request: Request, error: Exception) -> Response:
    path = request.url.path
    if path.endswith("/realtime"):
        told = NotFound("Realtime sessions are not served; use /v1/responses, or /v1/audio for speech.")
    else:
        hint = "; /openapi.json lists the routes."
        if path.startswith("/v1/v1/"):
            hint += " Remove /v1 from the client's base URL, because this client adds it."
        told = NotFound(f"There is nothing at {path}{hint}")
    return error_response(told, request)


def allowed(service: Starlette, path: str, *more: str) -> str:
    """The value of the `Allow` header for `path`: the methods of all routes that serve it, and the methods in
    `more`. Empty if no route serves the path.
    """
    serving = [each for each in service.routes if isinstance(each, Route) and each.path_regex.match(path)]
    methods = {method for route in serving for method in route.methods or ()}
    return ", ".join(sorted({*methods, *more})) if methods else ""


async def not_allowed(request: Request, error: Exception) -> Response:
    """Answer with status 405 and an `Allow` header. Starlette's own answer names the methods of one route only, and a
    path may have several routes."""
    problem = MethodNotAllowed(f"{request.url.path} does not take {request.method}.")
    return error_response(problem, request, {"Allow": allowed(request.app, request.scope["path"])})


def worker_from(description: Mapping[str, Any]) -> Worker:
    """Build the worker that `description` describes. The supervisor passes this description. Raises ConfigError."""

    def path(name: str) -> Path | None:
        return Path(description[name]) if description.get(name) else None

    settings = load_settings(
        path("config"), path("data_dir"), [Path(folder) for folder in description.get("policies") or ()]
    )
    return Worker(
        settings,
        description.get("redis_url") or settings.config.state.redis_url or own_socket.url(settings.paths.socket),
        description.get("local_model_url"),
        bool(description.get("simulate")),
        int(description.get("worker", 0)),
        int(description.get("workers", 1)),
        description.get("fd"),
        description.get("litellm_socket"),
    )


def __getattr__(name: str) -> Application:
    """Build the application `gateway.app:app` when another ASGI server first asks for it. Without a supervisor, the
    application has its own ledger writer.
    """
    if name == "app":
        return Application(worker_from(orjson.loads(variable("THRIFTGATE_WORKER", "{}"))))
    raise AttributeError(name)
