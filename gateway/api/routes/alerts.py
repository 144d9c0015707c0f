"""`/admin/alerts`: lists and acknowledges alerts. Disabled unless the operator enables the admin API."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.alerts.delivery import deliveries
from gateway.api.auth import Authenticator, json_response
from gateway.api.routes.query import whole_number
from gateway.api.server.asgi import read_object
from gateway.domain.protocols import Clock
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, NotFound
from gateway.state.sql.database import Database

MOST = 1000


class AlertRoutes:
    """The HTTP form of `thriftgate alerts list`, `acknowledge` and `dead-letters`."""

    def __init__(self, *, authenticator: Authenticator, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        admin = authenticator.needs("admin")
        self.routes = [
            Route("/admin/alerts", admin(self.listing)),
            Route("/admin/alerts", admin(self.change), methods=["POST"]),
        ]

    async def listing(self, request: Request, tenant: Tenant) -> Response:
        """List alerts, newest first. Query: `?team=`, `?limit=` (100), `?dead=1` for deliveries that were given up."""
        asked = request.query_params
        limit = whole_number(asked, "limit", 100, MOST)
        dead = asked.get("dead", "0")
        if dead not in ("0", "1", "true", "false"):
            raise BadRequest("dead must be 1 or 0.", param="dead")
        read = deliveries.dead if dead in ("1", "true") else deliveries.latest
        found = await self._database.run(partial(read, team=asked.get("team"), limit=limit), writes=False)
        return json_response([asdict(one) for one in found])

    async def change(self, request: Request, tenant: Tenant) -> Response:
        """Change alerts. Body: `{"acknowledge": "ID"}`, or `{"retry_dead_letters": true, "team"?}`."""
        asked = await read_object(request)
        now = self._clock.time()
        if isinstance(id := asked.get("acknowledge"), str):
            team = await self._database.run(partial(deliveries.acknowledge, id=id, by=tenant.key.id, now=now))
            if team is None:
                raise NotFound(f"There is no alert {id!r}; GET /admin/alerts lists them.")
            return json_response({"id": id, "team": team, "acknowledged": True})
        if asked.get("retry_dead_letters") is True:
            count = await self._database.run(partial(deliveries.revive, team=_team(asked), now=now))
            return json_response({"retried": count})
        raise BadRequest('Send {"acknowledge": "ID"} or {"retry_dead_letters": true}.', param="acknowledge")


def _team(asked: dict[str, Any]) -> str | None:
    team = asked.get("team")
    if team is not None and not isinstance(team, str):
        raise BadRequest("team must be a team's name.", param="team")
    return team
