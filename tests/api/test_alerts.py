"""Alerts over HTTP: listed, acknowledged, and their dead letters revived, by admin keys alone."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from gateway.alerts.alert import alert
from gateway.alerts.delivery import deliveries
from gateway.domain.policy import AlertsPolicy, Notify
from tests.api.conftest import Api


@pytest.fixture
async def admin(api: Api) -> Api:
    """Two teams have an alert each; the letter about one is dead."""
    await api.key("admin", "ops", "admin")
    now = time.time()

    def write(connection: Any) -> None:
        for team in ("search", "chat"):
            facts = alert(f"{team}/x", "threshold", "critical", team, {"text": f"{team} spent"})
            receivers = [Notify(webhook="env:HOOK")] if team == "search" else []
            deliveries.write(connection, facts, team, receivers, AlertsPolicy(), now)
        (letter,) = deliveries.claim(connection, now, 20.0)
        assert deliveries.refused(connection, letter, now + deliveries.GIVE_UP_S, "answered 500")

    await api.gateway.database.run(write)
    return api


async def post(admin: Api, key: str = "admin", **fields: Any) -> Any:
    return await admin.send("/admin/alerts", method="POST", key=key, body=orjson.dumps(fields))


async def test_only_an_admin_key_may(admin: Api) -> None:
    await admin.key("figures", "search", "usage")
    for key in ("search", "figures"):
        assert (await admin.send("/admin/alerts", key=key)).status == 403
        assert (await post(admin, key, acknowledge="search/x")).status == 403
    assert (await admin.send("/admin/alerts", key="")).status == 401


async def test_they_are_listed_by_team_and_by_what_became_of_them(admin: Api) -> None:
    everything = (await admin.send("/admin/alerts", key="admin")).json
    assert sorted((one["team"], one["target"]) for one in everything) == [
        *(("chat", ""), ("search", ""), ("search", "env:HOOK"))
    ]
    chat = (await admin.send("/admin/alerts", key="admin", query="team=chat")).json
    assert [(one["id"], one["severity"], one["payload"]["text"]) for one in chat] == [
        ("chat/x", "critical", "chat spent")
    ]
    dead = (await admin.send("/admin/alerts", key="admin", query="dead=1&limit=5")).json
    assert [(one["target"], one["last_error"]) for one in dead] == [("env:HOOK", "answered 500")]


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "many"])
async def test_a_limit_that_is_none_is_refused(admin: Api, limit: str) -> None:
    refused = await admin.send("/admin/alerts", key="admin", query=f"limit={limit}")
    assert (refused.status, refused.error["param"]) == (400, "limit")


async def test_one_is_acknowledged_by_the_key_that_does(admin: Api) -> None:
    assert (await post(admin, acknowledge="search/x")).json == {
        "id": "search/x",
        "team": "search",
        "acknowledged": True,
    }
    (seen,) = [one for one in (await admin.send("/admin/alerts", key="admin")).json if one["id"] == "search/x"]
    assert seen["acknowledged_by"].startswith("key_")
    assert seen["acknowledged_at"] == pytest.approx(time.time(), abs=60)
    assert (await post(admin, acknowledge="nothing")).status == 404


async def test_dead_letters_are_tried_again(admin: Api) -> None:
    assert (await post(admin, retry_dead_letters=True, team="chat")).json == {"retried": 0}
    assert (await post(admin, retry_dead_letters=True)).json == {"retried": 1}
    assert (await admin.send("/admin/alerts", key="admin", query="dead=1")).json == []


@pytest.mark.parametrize(
    "fields", [{}, {"acknowledge": 5}, {"retry_dead_letters": "yes"}, {"retry_dead_letters": True, "team": 1}]
)
async def test_what_is_none_of_that_is_refused(admin: Api, fields: dict[str, Any]) -> None:
    assert (await post(admin, **fields)).status == 400
