"""What an admin key may do over HTTP, and that nobody else may."""

from __future__ import annotations

import re
import time
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from gateway.state.sql.tables import audit
from tests.api.conftest import Api


@pytest.fixture
async def admin(api: Api) -> Api:
    await api.key("admin", "ops", "admin")
    return api


def body(**fields: Any) -> bytes:
    return orjson.dumps(fields)


ROUTES = [
    ("GET", "/admin/fleet"),
    ("GET", "/admin/policies"),
    ("POST", "/admin/policies/reload"),
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("DELETE", "/admin/keys/key_1"),
    ("DELETE", "/admin/keys"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_only_an_admin_key_may(admin: Api, method: str, path: str) -> None:
    await admin.key("figures", "search", "usage")
    for key in ("search", "figures"):
        client = await admin.send(path, method=method, key=key, body=body(team="search"))
        assert (client.status, client.error["code"]) == (403, "forbidden")
    assert (await admin.send(path, method=method, key="")).status == 401


async def test_a_key_that_is_made_works_within_a_second_and_is_shown_once(admin: Api) -> None:
    made = await admin.send(
        "/admin/keys", method="POST", key="admin", body=body(team="fresh", name="app", expires="90d")
    )
    assert made.status == 201
    assert re.fullmatch(r"tg-[A-Za-z0-9_-]{32,}", made.json["key"])
    assert made.json["team"] == "fresh"
    assert made.json["expires_at"] == pytest.approx(time.time() + 90 * 86_400, abs=60)
    await admin.ring.refresh()
    assert (await admin.send("/v1/models", key=made.json["key"])).status == 200
    listed = await admin.send("/admin/keys", key="admin", query="team=fresh")
    assert [row["id"] for row in listed.json] == [made.json["id"]]
    assert made.json["key"].encode() not in listed.body
    assert b"digest" not in listed.body


async def test_the_list_of_keys_tells_teams_apart(admin: Api) -> None:
    everyone = await admin.send("/admin/keys", key="admin")
    assert {row["team"] for row in everyone.json} == {"search", "ops"}
    assert (await admin.send("/admin/keys", key="admin", query="team=nobody")).json == []


async def test_a_key_that_is_revoked_ends_and_only_once(admin: Api) -> None:
    key = await admin.key("short", "search")
    path = f"/admin/keys/{key.id}"
    assert (await admin.send("/v1/models", key="short")).status == 200
    done = await admin.send(path, method="DELETE", key="admin")
    assert (done.status, done.json) == (200, {"id": key.id, "revoked": True, "ended": [key.id]})
    await admin.ring.refresh()
    assert (await admin.send("/v1/models", key="short")).status == 401
    again = await admin.send(path, method="DELETE", key="admin")
    assert (again.status, again.error["code"]) == (404, "not_found")


async def test_every_change_is_in_the_audit_table_under_the_keys_name(admin: Api) -> None:
    acting = (await admin.send("/admin/keys", key="admin", query="team=ops")).json[0]["id"]
    made = await admin.send("/admin/keys", method="POST", key="admin", body=body(team="fresh"))
    await admin.send(f"/admin/keys/{made.json['id']}", method="DELETE", key="admin")
    rows = await admin.gateway.database.run(lambda link: link.execute(select(audit).order_by(audit.c.id)).all())
    assert [(row.actor, row.action, row.subject) for row in rows[-2:]] == [
        (acting, "key.create", made.json["id"]),
        (acting, "key.revoke", made.json["id"]),
    ]
    assert made.json["key"] not in str(rows)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({}, "team"),
        ({"team": ""}, "team"),
        ({"team": 5}, "team"),
        ({"team": "x" * 65}, "team"),
        ({"team": "a\nb"}, "team"),
        ({"team": "a", "scopes": []}, "scopes"),
        ({"team": "a", "scopes": "admin"}, "scopes"),
        ({"team": "a", "scopes": ["root"]}, "scopes"),
        ({"team": "a", "scopes": [["admin"]]}, "scopes"),
        ({"team": "a", "expires": "soon"}, "expires"),
        ({"team": "a", "expires": -5}, "expires"),
        ({"team": "a", "expires": None}, "expires"),
    ],
)
async def test_a_wish_that_makes_no_sense_is_told_with_its_field(admin: Api, asked: dict[str, Any], param: str) -> None:
    client = await admin.send("/admin/keys", method="POST", key="admin", body=body(**asked))
    assert (client.status, client.error["param"]) == (400, param)


async def test_the_fleet_is_shown_without_addresses_and_keys(admin: Api) -> None:
    client = await admin.send("/admin/fleet", key="admin")
    assert [(row["name"], row["available"]) for row in client.json] == [("small", True), ("far", True)]
    assert b"127.0.0.1" not in client.body
    assert b"sk-upstream" not in client.body


async def test_policies_are_shown_and_reloaded(admin: Api) -> None:
    shown = await admin.send("/admin/policies", key="admin")
    assert set(shown.json["teams"]) == {"default", "search"}
    assert shown.json["teams"]["search"]["policy"]["cache"]["enabled"] is False
    (admin.folder / "fresh.yaml").write_text("team: fresh\n")
    done = await admin.send("/admin/policies/reload", method="POST", key="admin")
    assert (done.status, done.json) == (200, {"reloaded": True, "problem": None})
    assert "fresh" in (await admin.send("/admin/policies", key="admin")).json["teams"]


async def test_a_broken_policy_is_not_taken_up_and_is_told(admin: Api) -> None:
    (admin.folder / "search.yaml").write_text("team: search\nbudget: {limit_usd: 0}\n")
    refused = await admin.send("/admin/policies/reload", method="POST", key="admin")
    assert (refused.status, refused.json["reloaded"]) == (409, False)
    assert "search.yaml:2: budget.limit_usd: must be above 0" in refused.json["problem"]
    shown = await admin.send("/admin/policies", key="admin")
    assert shown.json["teams"]["search"]["policy"]["cache"]["enabled"] is False
    assert shown.json["problem"]
    (admin.folder / "search.yaml").write_text("team: search\n")
    assert (await admin.send("/admin/policies/reload", method="POST", key="admin")).status == 200
    assert (await admin.send("/admin/policies", key="admin")).json["problem"] is None
