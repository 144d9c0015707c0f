"""Microsoft Entra on this machine: token endpoints that check every byte of a request."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from urllib.parse import urlencode

from aiohttp import web

from tests.support.http_server import HttpServer

TENANT, CLIENT = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
SECRET = "p+/=&% ~secret"
RESOURCE = "https://cognitiveservices.azure.com"
ASSERTION = "eyJhbGciOi.federated.token-_"
_COMMON = {"grant_type": "client_credentials", "client_id": CLIENT, "scope": f"{RESOURCE}/.default"}
BODIES = {
    urlencode({**_COMMON, "client_secret": SECRET}): "secret",
    urlencode(
        {
            **_COMMON,
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": ASSERTION,
        }
    ): "assertion",
}
"""The form that each proof must have, byte by byte, as Microsoft documents it."""
WRONG_SECRET = {
    "error": "invalid_client",
    "error_description": f"AADSTS7000215: Invalid client secret provided: {SECRET}. Trace ID: 0000",
    "error_codes": [7000215],
}


@dataclass
class Entra(HttpServer):
    """`granted`: how each token was requested. `tokens`: those in force, which the resource accepts."""

    tokens: set[str] = field(default_factory=set)
    granted: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    life_s: int = 3599
    down: bool = False
    wait: asyncio.Event | None = None
    """Answers wait for this event."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(f"/{TENANT}/oauth2/v2.0/token", self._token),
            web.get("/metadata/identity/oauth2/token", self._instance),
            web.get("/msi/token", self._service),
        ]

    async def _token(self, request: web.Request) -> web.Response:
        body = (await request.read()).decode("ascii")
        assert request.query_string == ""
        assert request.headers.getall("content-type") == ["application/x-www-form-urlencoded"]
        assert "authorization" not in request.headers
        self.asked.append(request.path)
        if body not in BODIES:
            return web.json_response(WRONG_SECRET, status=401)
        return await self._grant(BODIES[body], {"token_type": "Bearer", "ext_expires_in": self.life_s})

    async def _instance(self, request: web.Request) -> web.Response:
        assert request.headers.getall("metadata") == ["true"]
        self.asked.append(request.path_qs)
        return await self._grant("instance", {"token_type": "Bearer", "resource": RESOURCE}, text=True)

    async def _service(self, request: web.Request) -> web.Response:
        assert request.headers.getall("x-identity-header") == ["853b9a84-5bfa-4b22-a3f3-0b9a43d9ad8a"]
        self.asked.append(request.path_qs)
        ends = str(int(time.time()) + self.life_s)
        return await self._grant("service", {"expires_on": ends, "resource": RESOURCE}, only=True)

    async def _grant(
        self, how: str, beside: dict[str, object], *, text: bool = False, only: bool = False
    ) -> web.Response:
        """`text`: the lifetime is text, as IMDS writes it. `only`: `beside` has the lifetime."""
        if self.wait is not None:
            await self.wait.wait()
        if self.down:
            return web.json_response(
                {"error": "temporarily_unavailable", "error_description": "AADSTS90033: x"}, status=503
            )
        self.granted.append(how)
        token = f"eyJ0.{how}.{len(self.granted)}"
        self.tokens.clear()
        self.tokens.add(token)
        life = {} if only else {"expires_in": str(self.life_s) if text else self.life_s}
        return web.json_response({"access_token": token, **life, **beside})
