"""`GET /openapi.json`: the OpenAPI document of the routes that this gateway serves."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway import __version__


class OpenApiRoute:
    """Serves the OpenAPI document to everybody. It contains routes and fields, but no tenants and no settings."""

    def __init__(self, served: list[Route]) -> None:
        """`served`: all routes except inference. Routes may be added until the first request."""
        self._served = served
        self._document = b""
        self.routes = [Route("/openapi.json", self.document)]

    async def document(self, request: Request) -> Response:
        if not self._document:
            from gateway.api.openapi.document import document  # few gateways need it

            routes = [
                (method, route.path)
                for route in self._served
                for method in sorted(route.methods or ())
                if method != "HEAD"
            ]
            self._document = orjson.dumps(document(routes, __version__))
        return Response(self._document, media_type="application/json")
