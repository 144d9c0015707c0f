"""A backend is drained over HTTP, by name, for a time and a reason, and it is written down who did it."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from gateway.api.auth import Authenticator
from gateway.api.routes.drains import DrainRoutes
from gateway.policy.tenants import Tenants
from gateway.state.sql.tables import audit
from tests.api.conftest import Api

DRAIN, UNDRAIN = "/admin/backends/small/drain", "/admin/backends/small/undrain"


@pytest.fixture
async def admin(api: Api) -> Api:
    await api.key("admin", "ops", "admin")
    authenticator = Authenticator(Tenants(api.ring, api.policies))
    drains = DrainRoutes(authenticator=authenticator, fleet=api.gateway.fleet, database=api.gateway.database)
    api.routes.router.routes.extend(drains.routes)
    return api


def reason(api: Api) -> str:
    return api.gateway.fleet.state(api.gateway.fleet.backends[0]).reason


async def test_it_gets_nothing_until_it_is_taken_back(admin: Api) -> None:
    wish = orjson.dumps({"for": "10m", "reason": "new weights"})
    done = await admin.send(DRAIN, method="POST", key="admin", body=wish)
    assert (done.status, done.json["reason"]) == (200, "new weights")
    assert done.json["drained_until"] == pytest.approx(time.time() + 600, abs=30)
    assert reason(admin) == "drained: new weights"
    shown = {row["name"]: row["reason"] for row in (await admin.send("/admin/fleet", key="admin")).json}
    assert shown == {"small": "drained: new weights", "far": ""}
    back = await admin.send(UNDRAIN, method="POST", key="admin", body=b"{}")
    assert (back.status, back.json, reason(admin)) == (200, {"name": "small", "was_drained": True}, "")
    rows = await admin.gateway.database.run(lambda link: link.execute(select(audit).order_by(audit.c.id)).all())
    told = [(row.action, row.subject, row.detail) for row in rows[-2:]]
    assert told == [("backend.drain", "small", "new weights"), ("backend.undrain", "small", "")]


@pytest.mark.parametrize("path", [DRAIN, UNDRAIN])
async def test_only_an_admin_key_may(admin: Api, path: str) -> None:
    client = await admin.send(path, method="POST", body=b"{}")
    assert (client.status, reason(admin)) == (403, "")
    assert (await admin.send(path, method="POST", key="", body=b"{}")).status == 401


@pytest.mark.parametrize(
    ("asked", "param"),
    [({"for": "soon"}, "for"), ({"for": "8d"}, "for"), ({"reason": 5}, "reason"), ({"reason": "a\nb"}, "reason")],
)
async def test_a_wish_that_makes_no_sense_is_told(admin: Api, asked: dict[str, Any], param: str) -> None:
    client = await admin.send(DRAIN, method="POST", key="admin", body=orjson.dumps(asked))
    assert (client.status, client.error["param"], reason(admin)) == (400, param, "")


async def test_nobody_else_is_drained(admin: Api) -> None:
    client = await admin.send("/admin/backends/other/drain", method="POST", key="admin", body=b"{}")
    assert (client.status, client.error["code"]) == (404, "not_found")
