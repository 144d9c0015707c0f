"""Which caller may use which route: default-deny, the open ones are named here."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.headers import of_error
from gateway.api.wire import by_name, secret
from gateway.dialects import openai_chat
from gateway.domain.record import new_request_id
from gateway.domain.tenant import Tenant
from gateway.errors import Forbidden, GatewayError, Overloaded
from gateway.policy.tenants import Tenants

log = logging.getLogger(__name__)

OPEN = ("/health", "/health/live", "/health/ready", "/dashboard", "/dashboard/static/{path:path}")
"""Routes that ask for no key; the page and its files hold no data, what fills it does ask."""

Endpoint = Callable[[Request, Tenant], Awaitable[Response]]


def json_response(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def error_response(error: GatewayError) -> Response:
    request_id = new_request_id()
    headers = {name.decode(): value.decode() for name, value in of_error(error)} | {"x-request-id": request_id}
    body = openai_chat.error_body(error, request_id)
    return Response(body, error.status, headers, media_type="application/json")


class Door:
    """Wraps an endpoint so that only a key with one of `scopes` reaches it."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    def needs(self, *scopes: str) -> Callable[[Endpoint], Callable[[Request], Awaitable[Response]]]:
        def wrap(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
            async def guarded(request: Request) -> Response:
                try:
                    tenant = self._tenants.authenticate(secret(by_name(request.scope["headers"])))
                    if not tenant.key.scopes.intersection(scopes):
                        raise Forbidden(
                            f"This key lacks the scope {' or '.join(scopes)}; create one with "
                            f"`thriftgate keys create --team {tenant.team} --scope {scopes[0]}`."
                        )
                    return await endpoint(request, tenant)
                except GatewayError as error:
                    return error_response(error)
                except ConnectionResetError:  # the client left while it sent its body: nobody reads this
                    return Response(status_code=400)
                except (SQLAlchemyError, OSError) as error:
                    log.error(
                        "%s %s: the database or the disk does not answer: %s", request.method, request.url.path, error
                    )
                    return error_response(
                        Overloaded("The gateway's database or disk does not answer; try again shortly.")
                    )

            return guarded

        return wrap
