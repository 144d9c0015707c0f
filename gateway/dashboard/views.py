"""Serves the page's data over HTTP: figures, log of requests, single requests, backends, exports. Each answer contains
only what the key may see."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import orjson
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.alerts.delivery import deliveries
from gateway.dashboard import one_request, request_log
from gateway.dashboard.data import ALL, EVERYTHING, Figures
from gateway.dashboard.one_request import sees_team
from gateway.dashboard.parts import ALL_TEAMS
from gateway.dashboard.periods import MOST_DAYS, USUAL, Period
from gateway.dashboard.spoken import language_of, said
from gateway.domain.protocols import Clock
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, Forbidden, NotFound
from gateway.ledger.reports.dimensions import dimensions
from gateway.ledger.reports.formats import as_csv
from gateway.ledger.reports.report import read_usage
from gateway.ledger.reports.turns import Turns
from gateway.state.sql.database import Database

_T = TypeVar("_T")
Endpoint = Callable[[Request, Tenant], Awaitable[Response]]
Guard = Callable[[Endpoint], Callable[[Request], Awaitable[Response]]]
"""A function that wraps an endpoint. The wrapped endpoint requires a key with the right scope and turns a GatewayError
into a response."""
Needs = Callable[..., Guard]
"""Returns the guard for some scopes, of which a key must have one."""
Flight = Callable[[str, str], Awaitable[dict[str, Any] | None]]
"""Finds the flight record of a request by id and team."""
Health = Callable[[Tenant], list[dict[str, Any]]]
"""The state of the backends that a key may use; for admin keys of all backends."""

PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
AT_ONCE = 2
"""Maximum number of the page's queries that use the database at once. The database has a few more threads, which read
keys and write results."""
EXPORTED = "day,model,backend,key"


class Views:
    """The routes of the page that need a key."""

    def __init__(
        self, *, needs: Needs, database: Database, figures: Figures, flight: Flight, health: Health, clock: Clock = time
    ) -> None:
        self._database, self._figures, self._flight = database, figures, flight
        self._health, self._clock = health, clock
        self._turns = Turns(AT_ONCE)
        self.served = 0
        figured, anyone, admin = needs("usage", "admin"), needs("inference", "usage", "admin"), needs("admin")
        self.routes = [
            Route("/dashboard/viewer", anyone(self.viewer)),
            Route("/dashboard/data", figured(self.data)),
            Route("/dashboard/teams", admin(self.teams)),
            Route("/dashboard/groups", figured(self.groups)),
            Route("/dashboard/requests", anyone(self.requests)),
            Route("/dashboard/requests/{id}", anyone(self.request)),
            Route("/dashboard/backends", anyone(self.backends)),
            Route("/dashboard/export", figured(self.export)),
            Route("/dashboard/alerts", admin(self.acknowledge), methods=["POST"]),
        ]

    async def viewer(self, request: Request, tenant: Tenant) -> Response:
        """Answer with the rights of the key: which teams and figures it may see on the page."""
        return _json(await self._viewer(tenant))

    async def _viewer(self, tenant: Tenant) -> dict[str, Any]:
        teams = await self._figures.teams() if _admin(tenant) else [tenant.team]
        zones = self._figures.zones([ALL, *teams])
        own = {"team": tenant.team, "scopes": sorted(tenant.key.scopes), "teams": teams}
        return {**own, "zones": zones, "invented": self._figures.invented(teams)}

    async def data(self, request: Request, tenant: Tenant) -> Response:
        """Answer with the figures of one team. Query parameters: `period` (see `parse_period`; `days=1..366` means the
        same), `parts` (names separated by commas; without it, all), and, with an admin's key, `team`."""
        query = request.query_params
        team = _team(query, tenant)
        parts = query["parts"].split(",") if "parts" in query else EVERYTHING
        figures = await self._of(team, _period(query), parts)
        self.served += 1
        return _json({**figures, "viewer": await self._viewer(tenant)}, request)

    async def teams(self, request: Request, tenant: Tenant) -> Response:
        """Answer with the figures of all teams. Query parameters: `period`, and `parts` (names separated by commas;
        without it, all).
        """
        query = request.query_params
        parts = query["parts"].split(",") if "parts" in query else tuple(ALL_TEAMS)
        figures = await self._of(ALL, _period(query), parts)
        return _json({**figures, "viewer": await self._viewer(tenant)}, request)

    async def _of(self, team: str, period: str, parts: Sequence[str]) -> dict[str, Any]:
        self._check(team, period)
        try:
            return await self._figures.of(team, period, parts)
        except ValueError as error:
            raise BadRequest(f"{error}.", param="parts") from error

    def _check(self, team: str, period: str) -> Period:
        try:
            return self._figures.period(team, period)
        except ValueError as error:
            raise BadRequest(f"period: {error}.", param="period") from error

    def _wanted(self, query: Mapping[str, str], tenant: Tenant) -> request_log.Wanted:
        team = _team(query, tenant)
        period = self._check(team, _period(query))
        try:
            filters = request_log.check(query)
        except ValueError as error:
            raise BadRequest(f"{error}.", param=str(error).split()[0]) from error
        own = "" if sees_team(tenant) else tenant.key.lineage
        return request_log.Wanted(team, period, filters, own)

    async def requests(self, request: Request, tenant: Tenant) -> Response:
        """Answer with a page of the log of requests. Query parameters: `team`, `period`, filters, `sort=newest|cost`,
        `after` (the value `next` of the previous page), `format=json|csv`."""
        query = request.query_params
        wanted = self._wanted(query, tenant)
        sort = query.get("sort", "newest")
        if sort not in request_log.SORT:
            raise BadRequest(f"sort must be one of {', '.join(request_log.SORT)}.", param="sort")
        form = query.get("format", "json")
        if form not in ("json", "csv"):
            raise BadRequest("format must be json or csv.", param="format")
        if form == "csv":
            return _csv(await self._read(tenant, partial(request_log.as_csv, wanted=wanted)), "requests")
        try:
            found = await self._read(
                tenant, partial(request_log.page, wanted=wanted, sort=sort, after=query.get("after", ""))
            )
        except ValueError as error:
            raise BadRequest(f"{error}.", param="after") from error
        return _json({"team": wanted.team, "own": bool(wanted.own), **found}, request)

    async def request(self, request: Request, tenant: Tenant) -> Response:
        """Respond with the details of one past request, read from the ledger and its flight record. The status is 404
        if the key may not see the request."""
        id = request.path_params["id"][: one_request.MOST_ID]
        team = tenant.team
        if _admin(tenant):
            found_team: str | None = await self._read(tenant, partial(one_request.team_of, id=id))
            team = found_team or team
        rows, facts, names = await self._read(tenant, partial(one_request.rows_of, id=id, team=team))
        found = one_request.as_object(rows, facts, await self._flight(id, team))
        if found is None or not (found["flight"]["key"] == tenant.key.lineage or sees_team(tenant)):
            raise NotFound("There is no such request of this key. A request can be found about a second after its end.")
        return _json({**found, "key_names": names}, request)

    async def groups(self, request: Request, tenant: Tenant) -> Response:
        """Answer with the spend of the requests that the filters select. The query parameter `by` groups it: key,
        end_user, session, model or backend.
        """
        by = request.query_params.get("by", "key")
        if by not in request_log.GROUPS:
            raise BadRequest(f"by must be one of {', '.join(request_log.GROUPS)}.", param="by")
        wanted = self._wanted(request.query_params, tenant)
        return _json(
            {"team": wanted.team, **await self._read(tenant, partial(request_log.groups, wanted=wanted, by=by))}
        )

    async def export(self, request: Request, tenant: Tenant) -> Response:
        """Answer with the usage report as CSV. Query parameters: `team`, `period`, and `by` as in /v1/usage."""
        query = request.query_params
        team = _team(query, tenant)
        period = self._check(team, _period(query))
        try:
            by = dimensions(query.get("by", EXPORTED))
        except ValueError as error:
            raise BadRequest(f"by: {error}.", param="by") from error

        def read(connection: Connection) -> str:
            (report,) = read_usage(connection, [by], team=team, since=period.since, until=period.until)
            return as_csv(report)

        return _csv(await self._read(tenant, read), "usage")

    async def backends(self, request: Request, tenant: Tenant) -> Response:
        return _json({"backends": self._health(tenant)})

    async def acknowledge(self, request: Request, tenant: Tenant) -> Response:
        """Acknowledge the alert with the id `?id=`."""
        id = request.query_params.get("id", "")
        write = partial(deliveries.acknowledge, id=id, by=tenant.key.name or tenant.key.id, now=self._clock.time())
        team = await self._database.run(write)
        if team is None:
            raise NotFound("There is no such alert.")
        self._figures.forget(team, "alerts")
        return _json({"id": id, "team": team, "acknowledged": True})

    async def _read(self, tenant: Tenant, read: Callable[[Connection], _T]) -> _T:
        async with self._turns.of(tenant.team):
            return await self._database.run(read, writes=False)


def _admin(tenant: Tenant) -> bool:
    return "admin" in tenant.key.scopes


def _team(query: Mapping[str, str], tenant: Tenant) -> str:
    team = query.get("team", tenant.team)
    if team != tenant.team and not _admin(tenant):
        raise Forbidden(
            f"This key sees team {tenant.team} only; another team's figures need a key with the scope admin."
        )
    return team or tenant.team


def _period(query: Mapping[str, str]) -> str:
    """The text of the period in the request. The older parameter `days` accepts only a number."""
    if "period" in query:
        return query["period"]
    days = query.get("days", USUAL)
    if not (days.isascii() and days.isdigit() and len(days) < 4 and 1 <= int(days) <= MOST_DAYS):
        raise BadRequest(f"days must be a whole number from 1 to {MOST_DAYS}.", param="days")
    return days


def _json(values: Mapping[str, Any], request: Request | None = None) -> Response:
    """Answer with JSON values. If `request` asks for a language other than English, translations of the sentences in
    `values` are added."""
    if request is not None and (language := language_of(request.headers.get("accept-language", ""))):
        values = {**values, "said": said(values, language)}
    return Response(orjson.dumps(values), headers=PRIVATE, media_type="application/json")


def _csv(text: str, name: str) -> Response:
    headers = {**PRIVATE, "content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(text, headers=headers, media_type="text/csv; charset=utf-8")
