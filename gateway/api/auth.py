"""Authenticates callers and authorizes routes by scope. `OPEN` lists the routes that need no key; all other routes need
a key."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.response_headers import of_error, of_id
from gateway.api.server.asgi import by_name, closing, secret
from gateway.api.server.envelope import REQUEST_ID
from gateway.dialects.client import ClientDialect
from gateway.dialects.clients import PATHS, of_path
from gateway.dialects.path_endpoint import PathEndpoint
from gateway.domain.record import new_request_id
from gateway.domain.tenant import Tenant
from gateway.domain.text.truncation import cut
from gateway.errors import Forbidden, GatewayError, InvalidKey, Overloaded
from gateway.policy.tenants import Tenants

log = logging.getLogger(__name__)

OPEN = ("/", "/openapi.json", "/health", "/health/live", "/health/ready", "/dashboard", "/dashboard/static/{path:path}")
"""Routes that need no key. The dashboard's files contain no data; the routes that return its data need a key."""

Endpoint = Callable[[Request, Tenant], Awaitable[Response]]


def json_response(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def spoken(request: Request) -> ClientDialect:
    """The client dialect in which an error for this request is written. The request's path or the client's SDK
    decides.
    """
    path = request.scope["path"]
    if path not in PATHS and "anthropic-version" in request.headers:
        path = "/v1/messages"
    return of_path(path)


def error_response(error: GatewayError, request: Request, headers: Mapping[str, str] | None = None) -> Response:
    request_id = request.scope.get(REQUEST_ID) or new_request_id()
    hints = {
        name.decode(): value.decode() for name, value in [*of_error(error), *of_id(request_id), *closing(error.status)]
    }
    dialect = spoken(request)
    body = dialect.error_body(error, request_id)
    return Response(body, dialect.status(error), {**(headers or {}), **hints}, media_type="application/json")


def _secret_of(request: Request) -> bytes:
    """The caller's key, from a header or, on Google's paths, from the address. Raises InvalidKey."""
    try:
        return secret(by_name(request.scope["headers"]))
    except InvalidKey:
        dialect = spoken(request)
        if isinstance(dialect, PathEndpoint) and (key := dialect.key_in(request.scope["query_string"])):
            return key
        raise


class Authenticator:
    """Wraps an endpoint so that only requests whose key has one of `scopes` reach it."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    def knows(
        self, endpoint: Callable[[Request, Tenant | None], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a route that needs no key. If the caller's key is known, the endpoint gets the caller's identity, so
        that it can show more details. An unknown key is treated like no key."""

        async def greeted(request: Request) -> Response:
            try:
                tenant = await self._tenants.find(secret(by_name(request.scope["headers"])))
            except GatewayError:
                tenant = None
            return await endpoint(request, tenant)

        return greeted

    def needs(self, *scopes: str) -> Callable[[Endpoint], Callable[[Request], Awaitable[Response]]]:
        def wrap(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
            async def guarded(request: Request) -> Response:
                try:
                    tenant = await self._tenants.find(_secret_of(request))
                    if not tenant.key.scopes.intersection(scopes):
                        raise Forbidden(
                            f"This key lacks the scope {' or '.join(scopes)}; create one with "
                            f"`thriftgate keys create --team {tenant.team} --scope {scopes[0]}`."
                        )
                    return await endpoint(request, tenant)
                except GatewayError as error:
                    return error_response(error, request)
                except ConnectionResetError:  # the client disconnected while it sent its body, so no answer is needed
                    return Response(status_code=400)
                except (SQLAlchemyError, OSError) as error:
                    log.error(
                        "%s %s: the database or the disk does not answer: %s", request.method, request.url.path, error
                    )
                    away = Overloaded("The gateway's database or disk does not answer; try again shortly.")
                    return error_response(away, request)
                except Exception:  # the error is only logged, and the client keeps its connection
                    log.exception("%s %s failed inside the gateway", request.method, cut(request.url.path, 200))
                    return error_response(GatewayError("The gateway failed at this request."), request)

            return guarded

        return wrap
