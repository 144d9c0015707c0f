"""Operations of the dashboard's routes, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.api.openapi.operation import JSON, OPEN_OBJECT, READING, TEXT, Operation, Schema, query, whole, words

_SEEN = ("usage", "admin")
_ANYONE = ("inference", "usage", "admin")
_TEAM = query("team", "Of this team; for admin keys.", TEXT)
_PERIOD = query("period", "`30` days, `month`, `last-month`, `2026-01`, or `2026-01-05..2026-01-20`.", TEXT)
_PARTS = query("parts", "Names of parts, separated by commas; all without it.", TEXT)
_COUNTED = words("key", "end_user", "session", "model", "backend")
_FILTERS = (
    query("model", "The model that was asked for or that answered.", TEXT),
    query("backend", "A backend that was called.", TEXT),
    query("key", "Id of a key.", TEXT),
    query("session", "A session.", TEXT),
    query("end_user", "The pseudonym of an end user.", TEXT),
    query("status", "How a call ended.", words("ok", "failed", "interrupted", "escalated")),
    query("cache", "What the cache decided.", words("exact", "semantic", "join", "miss", "bypass", "off")),
    query("min_cost", "A call cost at least so much, in USD.", TEXT),
)
_CSV: Mapping[int, Mapping[str, Schema]] = {200: {"text/csv": TEXT}}
_EITHER: Mapping[int, Mapping[str, Schema]] = {200: {JSON: OPEN_OBJECT, "text/csv": TEXT}}

DASHBOARD: dict[tuple[str, str], Operation] = {
    ("GET", "/dashboard"): Operation("getDashboard", "The page.", (), {200: {"text/html": TEXT}}, errors=()),
    ("GET", "/dashboard/static/{path}"): Operation(
        "getDashboardFile", "A file of the page.", (), {200: {"*/*": {}}}, errors=(400, 404)
    ),
    ("GET", "/dashboard/viewer"): Operation("getDashboardViewer", "Team and scopes of the key.", _ANYONE),
    ("GET", "/dashboard/data"): Operation(
        "getDashboardData",
        "The figures of the page.",
        _SEEN,
        query=(query("days", "Of so many days.", whole(1, 366)), _PERIOD, _PARTS, _TEAM),
    ),
    ("GET", "/dashboard/teams"): Operation(
        "getDashboardTeams", "The figures of all teams.", ("admin",), query=(_PERIOD, _PARTS)
    ),
    ("GET", "/dashboard/groups"): Operation(
        "getDashboardGroups",
        "Spend by key, end user, session, model or backend.",
        _SEEN,
        query=(query("by", "The grouping.", _COUNTED), _PERIOD, _TEAM, *_FILTERS),
    ),
    ("GET", "/dashboard/requests"): Operation(
        "listDashboardRequests",
        "The log of requests. An inference key sees its own, with `data.share: team` those of its team.",
        _ANYONE,
        _EITHER,
        query=(
            *(_PERIOD, _TEAM, *_FILTERS, query("sort", "The order.", words("newest", "cost"))),
            query("after", "The value `next` of the page before.", TEXT),
            query("format", "The form of the answer.", words("json", "csv")),
        ),
    ),
    ("GET", "/dashboard/requests/{id}"): Operation(
        "getDashboardRequest", "One request: phases, decision, prices, and an explanation.", _ANYONE
    ),
    ("GET", "/dashboard/backends"): Operation(
        "getDashboardBackends", "State of the backends that the key may use.", _ANYONE
    ),
    ("GET", "/dashboard/export"): Operation(
        "exportDashboard",
        "Usage as CSV.",
        _SEEN,
        _CSV,
        query=(query("by", "Groupings as in /v1/usage, separated by commas.", TEXT), _PERIOD, _TEAM),
    ),
    ("POST", "/dashboard/alerts"): Operation(
        "acknowledgeAlert",
        "Acknowledge an alert.",
        ("admin",),
        query=(query("id", "Id of the alert.", TEXT, required=True),),
        errors=READING,
    ),
}
