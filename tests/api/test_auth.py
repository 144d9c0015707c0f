"""Default-deny: every route but the named ones asks for a key of the right scope."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.api.auth import OPEN, Authenticator, json_response
from gateway.domain.tenant import Key, Tenant
from gateway.errors import InvalidKey
from tests.api.conftest import Api
from tests.fakes.client import Client
from tests.fakes.gateway import tenant


class Tenants:
    """Knows one key, `tg-1`, with the given scopes."""

    def __init__(self, *scopes: str) -> None:
        self.tenant = Tenant(Key("key_1", "search", scopes=frozenset(scopes)), tenant().policy)

    async def find(self, secret: bytes) -> Tenant:
        if secret != b"tg-1":
            raise InvalidKey("Incorrect API key provided.")
        return self.tenant


async def send(authenticator: Authenticator, key: str = "tg-1") -> Client:
    async def endpoint(request: Request, tenant: Tenant) -> Response:
        return json_response({"team": tenant.team})

    guarded = Route("/", authenticator.needs("usage", "admin")(endpoint))
    return await Client(guarded, "/", method="GET", key=key).run()


@pytest.mark.parametrize(
    ("scopes", "status"),
    [(("usage",), 200), (("admin", "inference"), 200), (("inference",), 403), ((), 403)],
)
async def test_one_of_the_scopes_is_enough(scopes: tuple[str, ...], status: int) -> None:
    client = await send(Authenticator(Tenants(*scopes)))  # type: ignore[arg-type]
    assert client.status == status
    if status == 403:
        assert client.error["code"] == "forbidden"
        assert "--scope usage" in client.error["message"]


async def test_a_key_that_is_not_known_is_refused_with_an_id_to_ask_about() -> None:
    client = await send(Authenticator(Tenants("usage")), key="tg-2")  # type: ignore[arg-type]
    assert (client.status, client.error["code"]) == (401, "invalid_api_key")
    assert client.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("error", [OperationalError("SELECT secret", {}, Exception("down")), OSError("no disk")])
async def test_a_database_that_is_away_is_told_in_shape(error: Exception) -> None:
    async def endpoint(request: Request, tenant: Tenant) -> Response:
        raise error

    authenticator = Authenticator(Tenants("usage"))  # type: ignore[arg-type]
    client = await Client(Route("/", authenticator.needs("usage")(endpoint)), "/", method="GET", key="tg-1").run()
    assert client.status == 503
    assert "SELECT" not in client.error["message"]


async def test_a_client_that_leaves_is_not_taken_for_a_broken_disk(caplog: pytest.LogCaptureFixture) -> None:
    async def endpoint(request: Request, tenant: Tenant) -> Response:
        raise ConnectionResetError("the client left")

    authenticator = Authenticator(Tenants("usage"))  # type: ignore[arg-type]
    await Client(Route("/", authenticator.needs("usage")(endpoint)), "/", method="GET", key="tg-1").run()
    assert not caplog.records


async def test_every_route_but_the_open_ones_asks_for_a_key(api: Api) -> None:
    closed = 0
    for route in api.routes.routes:
        assert isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}:
            client = await api.send(route.path.replace("{id}", "x").replace("{name:path}", "x"), key="", method=method)
            assert (client.status == 401) == (route.path not in OPEN), (method, route.path)
            closed += client.status == 401
    assert closed >= 10
