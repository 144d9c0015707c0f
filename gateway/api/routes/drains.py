"""`/admin/backends/NAME/drain`: stops new requests to a backend on all workers. Needs the admin API."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.server.asgi import read_object
from gateway.backends.fleet import Fleet
from gateway.backends.resilience.drain import LONGEST_S, USUAL_S
from gateway.domain.tenant import Tenant
from gateway.domain.units import parse_duration
from gateway.errors import BadRequest, NotFound, Overloaded, StateUnavailable
from gateway.policy import keys
from gateway.state.sql.database import Database

MOST_WORDS = 200
"""Maximum characters of a reason."""


class DrainRoutes:
    """Endpoints that drain a backend. They are called by an operator who is about to stop a machine, or by the
    machine itself.
    """

    def __init__(self, *, authenticator: Authenticator, fleet: Fleet, database: Database) -> None:
        self._fleet, self._database = fleet, database
        admin = authenticator.needs("admin")
        self.routes = [
            Route("/admin/backends/{name:path}/drain", admin(self.drain), methods=["POST"]),
            Route("/admin/backends/{name:path}/undrain", admin(self.undrain), methods=["POST"]),
        ]

    async def drain(self, request: Request, tenant: Tenant) -> Response:
        """Stop new requests to a backend: `{"for"?: "1h", "reason"?: "new weights"}`. Calls in progress continue.

        The answer says when the drain ends.
        """
        name, asked = self._name(request), await read_object(request)
        try:
            seconds = parse_duration(asked.get("for", USUAL_S))
        except ValueError as error:
            raise BadRequest(f"for {error}.", param="for") from error
        if seconds > LONGEST_S:
            raise BadRequest(f"for must be at most {LONGEST_S / 86400:g} days.", param="for")
        why = asked.get("reason", "by hand")
        if not isinstance(why, str) or not why.isprintable() or len(why) > MOST_WORDS:
            raise BadRequest(f"reason must be at most {MOST_WORDS} printable characters.", param="reason")
        try:
            until = await self._fleet.drains.drain(name, seconds, why)
        except StateUnavailable as error:
            raise _half_done("drained") from error
        await self._note(tenant, "backend.drain", name, why)
        return json_response({"name": name, "drained_until": until, "reason": why})

    async def undrain(self, request: Request, tenant: Tenant) -> Response:
        name = self._name(request)
        try:
            was = await self._fleet.drains.undrain(name)
        except StateUnavailable as error:
            raise _half_done("undrained") from error
        await self._note(tenant, "backend.undrain", name)
        return json_response({"name": name, "was_drained": was})

    def _name(self, request: Request) -> str:
        name: str = request.path_params["name"]
        if self._fleet.get(name) is None:
            raise NotFound(f"There is no backend {name}.")
        return name

    async def _note(self, tenant: Tenant, action: str, name: str, detail: str = "") -> None:
        await asyncio.to_thread(keys.note, self._database, tenant.key.id, action, name, detail)


def _half_done(what: str) -> Overloaded:
    return Overloaded(
        f"It is {what} on one worker only, because the state server does not answer. Try again.",
        retry_after_s=1.0,
    )
