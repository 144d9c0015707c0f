"""`/admin/*`: keys, policies and backends over HTTP. Disabled unless the operator enables it; needs an admin key."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.auth import Authenticator, json_response
from gateway.api.routes.usage import UsageFigures, usage_response
from gateway.api.server.asgi import read_object
from gateway.backends.fleet import Fleet
from gateway.domain.tenant import Tenant
from gateway.domain.units import parse_duration
from gateway.errors import BadRequest, NotFound
from gateway.policy import keys
from gateway.policy.load import Policies
from gateway.state.sql.database import Database

LONGEST_S = 100 * 365 * 86400
"""Maximum life, in seconds, of a key with an expiry."""


class Admin:
    """The functions of `thriftgate keys` over HTTP. Every change is recorded in the audit table."""

    def __init__(
        self, *, authenticator: Authenticator, fleet: Fleet, database: Database, policies: Policies, spend: UsageFigures
    ) -> None:
        self._fleet, self._database, self._policies, self._spend = fleet, database, policies, spend
        admin = authenticator.needs("admin")
        self.routes = [
            Route("/admin/fleet", admin(self.fleet)),
            Route("/admin/usage", admin(self.usage)),
            Route("/admin/policies", admin(self.show_policies)),
            Route("/admin/policies/reload", admin(self.reload), methods=["POST"]),
            Route("/admin/keys", admin(self.list_keys)),
            Route("/admin/keys", admin(self.create_key), methods=["POST"]),
            Route("/admin/keys", admin(self.revoke_team), methods=["DELETE"]),
            Route("/admin/keys/{id}", admin(self.revoke_key), methods=["DELETE"]),
        ]

    async def fleet(self, request: Request, tenant: Tenant) -> Response:
        """The backends and their state, without addresses and keys."""
        return json_response(
            [
                {
                    "name": backend.name,
                    "kind": backend.kind,
                    "tier": backend.tier,
                    "model": backend.model,
                    "available": state.available,
                    "reason": state.reason,
                    "in_flight": state.in_flight,
                    "first_byte_ms": state.first_byte_ms,
                    "load": asdict(state.load) if state.load else None,
                    "wait_s": round(state.wait_s, 3),
                }
                for backend in self._fleet.backends
                for state in [self._fleet.state(backend)]
            ]
        )

    async def usage(self, request: Request, tenant: Tenant) -> Response:
        """Answer with the usage report of all teams, or of the team in the query `?team=`."""
        return await usage_response(self._spend, request.query_params, request.query_params.get("team"))

    async def show_policies(self, request: Request, tenant: Tenant) -> Response:
        current = self._policies.current
        teams = {
            team: {"epoch": current.epochs[team], "policy": policy.model_dump(mode="json")}
            for team, policy in current.policies.items()
        }
        return json_response({"teams": teams, "problem": self._policies.problem or None})

    async def reload(self, request: Request, tenant: Tenant) -> Response:
        swapped = await self._policies.reload()
        return json_response({"reloaded": swapped, "problem": self._policies.problem or None}, 200 if swapped else 409)

    async def list_keys(self, request: Request, tenant: Tenant) -> Response:
        return json_response(await asyncio.to_thread(keys.listing, self._database, request.query_params.get("team")))

    async def create_key(self, request: Request, tenant: Tenant) -> Response:
        """Create a key from `{"team", "name"?, "scopes"?, "expires"?: "90d", "allowed_models"?}`. The secret is in the
        answer and is never shown again."""
        asked = await read_object(request)
        team, scopes = asked.get("team"), asked.get("scopes", ["inference"])
        if not isinstance(team, str):
            raise BadRequest("team must name the team that pays.", param="team")
        try:
            keys.check_team(team)
        except ValueError as error:
            raise BadRequest(f"team {error}.", param="team") from error
        if not isinstance(scopes, list) or not scopes or any(scope not in keys.SCOPES for scope in scopes):
            raise BadRequest(f"scopes must be a list out of {', '.join(keys.SCOPES)}.", param="scopes")
        try:
            expires_s = parse_duration(asked["expires"]) if "expires" in asked else None
        except ValueError as error:
            raise BadRequest(f"expires {error}.", param="expires") from error
        if expires_s is not None and expires_s > LONGEST_S:
            raise BadRequest(f"expires must be at most {LONGEST_S // 86400} days.", param="expires")
        expires_at = None if expires_s is None else time.time() + expires_s
        allowed = asked.get("allowed_models")
        if allowed is not None and not (isinstance(allowed, list) and all(isinstance(one, str) for one in allowed)):
            raise BadRequest(
                "allowed_models must be a list of names of backends, models or tiers.", param="allowed_models"
            )
        try:
            secret, key = await asyncio.to_thread(
                lambda: keys.create(
                    self._database,
                    team,
                    name=str(asked.get("name", ""))[:200],
                    scopes=scopes,
                    expires_at=expires_at,
                    allowed_models=allowed,
                    actor=tenant.key.id,
                )
            )
        except ValueError as error:
            raise BadRequest(f"{error}.", param="allowed_models") from error
        return json_response({"key": secret, "id": key.id, "team": team, "expires_at": expires_at}, 201)

    async def revoke_key(self, request: Request, tenant: Tenant) -> Response:
        """Revoke the key, all keys that it replaced, and all keys that replaced it."""
        key_id = request.path_params["id"]
        ended = await asyncio.to_thread(lambda: keys.revoke(self._database, key_id, actor=tenant.key.id))
        if not ended:
            raise NotFound(f"There is no living key {key_id}.")
        return json_response({"id": key_id, "revoked": True, "ended": ended})

    async def revoke_team(self, request: Request, tenant: Tenant) -> Response:
        """Revoke all keys of a team: `?team=T&confirm=true`. This includes the caller's own key if it belongs to
        the team.
        """
        team = request.query_params.get("team")
        if not team:
            raise BadRequest("team must name the team whose keys are to end.", param="team")
        if request.query_params.get("confirm") != "true":
            ids = await asyncio.to_thread(keys.living, self._database, team)
            raise BadRequest(f"This would end {len(ids)} keys of team {team}: add confirm=true.", param="confirm")
        ended = await asyncio.to_thread(lambda: keys.revoke_team(self._database, team, actor=tenant.key.id))
        return json_response({"team": team, "ended": ended})
