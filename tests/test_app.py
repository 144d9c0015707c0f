"""The application as any ASGI server starts it: its parts open and close, routes are those that the operator wants."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from blockbuster import BlockBuster
from starlette.applications import Starlette
from starlette.routing import Route

from gateway.api.auth import OPEN
from gateway.app import Application, not_found
from gateway.dialects.clients import PATHS
from gateway.domain.policy import Policy
from gateway.domain.routing.route import ContextEstimate
from gateway.domain.tenant import Key, Tenant
from gateway.policy import keys
from gateway.settings.gateway import GatewayConfig, Paths, Settings
from gateway.state.sql.database import Database
from gateway.wiring import Wiring, Worker
from tests.fakes.client import JSON, Client, Lifespan
from tests.routing.conftest import request
from tests.support.requests import chat_body
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(120)  # processes start, on a machine that is busy

ADMIN = [
    ("GET", "/admin/fleet"),
    ("GET", "/admin/policies"),
    ("POST", "/admin/policies/reload"),
    ("POST", "/admin/backends/x/drain"),
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("DELETE", "/admin/keys/key_1"),
]


@pytest.fixture(autouse=True)
def may_start(no_blocking_calls: BlockBuster) -> None:
    """While it opens its parts nobody is served, so it may block."""
    for function in no_blocking_calls.functions.values():
        function.can_block_in("gateway/wiring.py", "open")


def worker(state_url: str, folder: Path, **config: object) -> Worker:
    return Worker(Settings(GatewayConfig(backends=(), **config), Paths(folder), ()), state_url)


def with_budget(state_url: str, folder: Path) -> Worker:
    """A worker without backends, in which the team `ops` has a budget."""
    rules = folder / "rules"
    rules.mkdir()
    (rules / "ops.yaml").write_text("team: ops\nbudget: {limit_usd: 1, window: month}\n")
    return Worker(Settings(GatewayConfig(backends=()), Paths(folder), (rules,)), state_url)


async def ready(app: Application) -> None:
    await until(lambda: answers(app))


async def answers(app: Application) -> bool:
    """Whether it is as ready as it will be without a backend."""
    return "no backend" in (await Client(app, "/health/ready", method="GET").run()).json.get("why", "")


async def key(folder: Path, *scopes: str) -> str:
    database = await asyncio.to_thread(Database, f"sqlite:///{Paths(folder).sqlite}")
    secret, _ = await asyncio.to_thread(lambda: keys.create(database, "ops", scopes=scopes))
    await asyncio.to_thread(database.close)
    return secret


async def test_without_a_supervisor_it_begins_on_an_empty_directory(state_url: str, tmp_path: Path) -> None:
    app = Application(worker(state_url, tmp_path / "new"))
    async with Lifespan(app):
        await ready(app)
        secret = await key(tmp_path / "new", "inference")
        body = chat_body()

        async def known() -> Client | None:
            client = await Client(app, key=secret, headers=JSON, body=body).run()
            return client if client.status != 401 else None

        client = await until(known)
        assert (client.status, client.error["code"]) == (503, "no_backend_configured")


async def test_a_worker_prefers_what_a_commitment_has_paid(state_url: str, tmp_path: Path) -> None:
    member = {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m", "model_group": "g"}
    pool = [{"name": name, **member, "price": {"input": usd, "output": usd}} for name, usd in (("a", 1), ("b", 5))]
    credit = {"name": "c", "backend": "b", "usd": 9, "valid_until": "2999-01-01"}
    config = GatewayConfig.model_validate({"backends": pool, "prices": {"credits": [credit]}})
    wiring = Wiring(Worker(Settings(config, Paths(tmp_path), ()), state_url))
    try:
        await wiring.open()
        who = Tenant(Key("k", "search"), Policy(team="search"))

        def first() -> str:
            return wiring.router.decide(request(model="g"), who, ContextEstimate(50, 50)).backends[0].name

        await until(lambda: first() == "b")
    finally:
        await wiring.aclose()


async def test_a_worker_reads_a_teams_budgets_before_its_first_request(state_url: str, tmp_path: Path) -> None:
    wiring = Wiring(with_budget(state_url, tmp_path))
    try:
        await wiring.open()
        secret = await key(tmp_path, "inference")
        await until(lambda: wiring.budgets.stats()["leases.rebuilt"] == 1)
        await until(lambda: wiring.budgets.stats()["leases.in_use"] == 0)
        tenant = wiring.tenants.authenticate(secret.encode())
        (group,) = await wiring.budgets.refuse_exhausted(tenant)
        assert group.known
        assert wiring.budgets.stats()["leases.rebuilt"] == 1
    finally:
        await wiring.aclose()


async def test_without_a_state_server_budgets_are_left_to_the_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wiring = Wiring(with_budget(f"unix://{tmp_path}/none", tmp_path))
    caplog.set_level("DEBUG", "gateway.wiring")
    try:
        await wiring.open()
        await key(tmp_path, "inference")
        await until(lambda: "budgets are read when they are needed" in caplog.text)
        assert not [each for each in caplog.records if "background task" in each.message]
    finally:
        await wiring.aclose()


async def test_a_slash_at_the_end_of_a_path_changes_nothing(state_url: str, tmp_path: Path) -> None:
    app = Application(worker(state_url, tmp_path))
    async with Lifespan(app):
        await ready(app)
        for method, path, status in (
            ("POST", "/v1/chat/completions", 401),
            ("POST", "/v1/messages", 401),
            ("GET", "/v1/models", 401),
            ("GET", "/health/live", 200),
            ("OPTIONS", "/v1/chat/completions", 204),
            ("GET", "/dashboard", 308),
            ("GET", "/v1/nothing", 404),
            ("GET", "/v1/models//", 401),
        ):
            assert (await Client(app, f"{path}/", method=method).run()).status == status, path
        assert (await Client(app, "/", method="GET").run()).status == 200
        assert app.socket_at(b"/v1/responses/") == app.socket_at(b"/v1/responses")


async def test_inside_another_applications_thread_it_works_too(state_url: str, tmp_path: Path) -> None:
    async def live() -> None:
        app = Application(worker(state_url, tmp_path))
        async with Lifespan(app):
            await ready(app)

    await asyncio.to_thread(asyncio.run, live())


async def test_the_admin_routes_are_closed_unless_the_operator_opens_them(state_url: str, tmp_path: Path) -> None:
    """Routes that do not exist: not even an admin key learns that they could."""
    closed = Application(worker(state_url, tmp_path))
    async with Lifespan(closed):
        await ready(closed)
        secret = await key(tmp_path, "admin")
        for method, path in ADMIN:
            client = await Client(closed, path, method=method, key=secret, body=b"{}").run()
            assert (client.status, client.error["code"]) == (404, "not_found"), path


async def test_every_route_but_the_open_ones_asks_for_a_key(state_url: str, tmp_path: Path) -> None:
    app = Application(worker(state_url, tmp_path, admin_api=True))
    async with Lifespan(app):
        await ready(app)
        known = {}
        for route in app._service.routes:
            assert isinstance(route, Route)
            path = re.sub(r"{[^}]*}", "x", route.path)
            for method in (route.methods or set()) - {"HEAD"}:
                client = await Client(app, path, method=method, body=b"{}").run()
                assert (client.status == 401) == (route.path not in OPEN), (method, route.path, client.status)
                known[method, path] = client.status
        assert {(method, path.replace("key_1", "x")) for method, path in ADMIN} <= known.keys()
        for path in PATHS:
            client = await Client(app, path, body=b"{}").run()
            assert client.status == 401
            assert b"API key" in client.body
        for method in ("generateContent", "countTokens"):
            client = await Client(app, f"/v1beta/models/x:{method}", body=b"{}").run()
            assert (client.status, client.json["error"]["status"]) == (401, "UNAUTHENTICATED")
        for method, path, status in (("GET", "/nothing", 404), ("PUT", "/v1/models", 405), ("GET", "/v1", 404)):
            client = await Client(app, path, method=method).run()
            assert (client.status, client.error["type"]) == (status, "invalid_request_error")


@pytest.mark.parametrize(("path", "hinted"), [("/v1/v1/messages", True), ("/v1/message", False)])
async def test_a_base_url_with_v1_too_much_is_explained(path: str, hinted: bool) -> None:
    app = Starlette(exception_handlers={404: not_found})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        message = (await client.post(path, json={})).json()["error"]["message"]
    assert f"nothing at {path}; /openapi.json lists the routes." in message
    assert ("Remove /v1 from the client's base URL" in message) == hinted
