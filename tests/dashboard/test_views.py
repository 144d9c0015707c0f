"""The log, single requests, groups, all teams and exports; each key sees its own part only."""

from __future__ import annotations

import asyncio
import csv
import io
from typing import Any

import orjson
import pytest
from sqlalchemy import insert

from gateway.dashboard.parts import Scope
from gateway.dashboard.periods import parse_period
from gateway.domain.money.windows import iso
from gateway.ledger.prices.price_book import PriceBook
from gateway.policy import keys
from gateway.state.sql.database import Database
from gateway.state.sql.tables import alerts
from tests.dashboard.samples import DAY, NOW, USD, policies, put, row, traffic
from tests.dashboard.test_page import Visitor, visitor

__all__ = ["visitor"]
HOSTILE = "<img src=x onerror=alert(1)>"


async def ids(visitor: Visitor, as_key: str = "lead", /, **query: str) -> list[str]:
    answer = await visitor.get("requests", as_key, **query)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["requests"]]


async def test_the_log_has_the_newest_request_first_and_each_once(visitor: Visitor, database: Database) -> None:
    rows = [row(request_id=f"req_{number:03d}", at=NOW - 1 - number) for number in range(120)]
    rows += [row(request_id=f"req_{number:03d}", attempt=2, at=NOW - 1 - number) for number in range(120)]
    await put(database, *rows)
    seen, after, pages = [], "", 0
    while pages == 0 or after:
        answer = (await visitor.get("requests", "lead", after=after)).json()
        seen += [one["id"] for one in answer["requests"]]
        after, pages = answer["next"], pages + 1
    assert (seen, pages) == ([f"req_{number:03d}" for number in range(120)], 3)


async def test_requests_of_the_same_moment_are_neither_lost_nor_repeated(visitor: Visitor, database: Database) -> None:
    await put(database, *(row(request_id=f"req_{number:03d}", at=NOW - 60) for number in range(101)))
    first = (await visitor.get("requests", "lead")).json()
    second = (await visitor.get("requests", "lead", after=first["next"])).json()
    third = (await visitor.get("requests", "lead", after=second["next"])).json()
    found = [one["id"] for page in (first, second, third) for one in page["requests"]]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 101
    assert third["next"] == ""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"model": "gpt"}, ["req_gpt"]),
        ({"model": "my-app"}, ["req_gpt"]),
        ({"backend": "small"}, ["req_weak"]),
        ({"status": "failed"}, ["req_bad"]),
        ({"status": "escalated"}, ["req_weak"]),
        ({"cache": "semantic"}, ["req_hit"]),
        ({"key": "key_help"}, ["req_hit"]),
        ({"session": "s-1"}, ["req_bad"]),
        ({"end_user": "eu-1"}, ["req_gpt"]),
        ({"min_cost": "2.5"}, ["req_gpt"]),
        ({"min_cost": "2.5", "status": "failed"}, []),
        ({"period": "2026-12"}, ["req_old"]),
        ({"sort": "cost"}, ["req_gpt", "req_weak", "req_bad", "req_hit"]),
    ],
)
async def test_filters_choose_requests(
    visitor: Visitor, database: Database, query: dict[str, str], expected: list[str]
) -> None:
    await put(
        database,
        row(request_id="req_gpt", backend="gpt", model="gpt", model_asked="my-app", end_user="eu-1", cost_pico=3 * USD),
        row(request_id="req_weak", backend="small", outcome="escalated", cost_pico=USD // 2),
        row(request_id="req_weak", attempt=2),
        row(request_id="req_bad", outcome="failed", session="s-1"),
        row(request_id="req_hit", attempt=0, cache="semantic", key_id="key_help"),
        row(request_id="req_old", at=NOW - 30 * DAY),
        row(request_id="req_idle", attempt=0, kind="idle"),
        row(team="chat", request_id="req_foreign", backend="small", session="s-1", cost_pico=9 * USD),
    )
    assert await ids(visitor, **query) == expected


@pytest.mark.parametrize(
    ("path", "query", "param"),
    [
        ("requests", {"status": "odd"}, "status"),
        ("requests", {"cache": "odd"}, "cache"),
        ("requests", {"min_cost": "NaN"}, "min_cost"),
        ("requests", {"min_cost": "1e99"}, "min_cost"),
        ("requests", {"sort": "odd"}, "sort"),
        ("requests", {"format": "odd"}, "format"),
        ("requests", {"after": "odd"}, "after"),
        ("requests", {"after": "odd", "sort": "cost"}, "after"),
        ("requests", {"period": "odd"}, "period"),
        ("groups", {"by": "team"}, "by"),
        ("export", {"by": "nothing"}, "by"),
        ("data", {"parts": "spend,odd"}, "parts"),
    ],
)
async def test_a_wrong_query_is_refused_by_its_name(
    visitor: Visitor, path: str, query: dict[str, str], param: str
) -> None:
    answer = await visitor.get(path, "lead", **query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


PRIVATE = (
    ("requests", {}),
    ("requests", {"format": "csv"}),
    ("requests", {"sort": "cost"}),
    ("requests", {"key": "key_chat"}),
    ("requests", {"model": "hush-model"}),
    ("groups", {"by": "key"}),
    ("groups", {"by": "model"}),
    ("groups", {"by": "session", "key": "key_chat"}),
    ("export", {}),
    ("export", {"by": "team,key,model"}),
    ("data", {}),
    ("viewer", {}),
    ("backends", {}),
)


@pytest.mark.parametrize(("path", "query"), PRIVATE)
@pytest.mark.parametrize("key", ["lead", "app"])
async def test_nothing_of_another_team_is_in_any_answer(
    visitor: Visitor, database: Database, path: str, query: dict[str, str], key: str
) -> None:
    hush = {"team": "chat", "key_id": "key_chat", "model": "hush-model", "model_asked": "hush-model"}
    await put(database, row(), row(**hush, request_id="req_hush", session="hush-session", cost_pico=1337 * USD))
    text = orjson.dumps({"id": "hush", "text": "hush budget"}).decode()
    alert = {"id": "hush", "team": "chat", "created_at": NOW, "payload": text, "target": ""}
    await database.run(lambda connection: connection.execute(insert(alerts), [alert]))
    answer = await visitor.get(path, key, **query)
    assert answer.status_code in ((200,) if key == "lead" else (200, 403))
    assert not [secret for secret in ("chat", "hush", "1337") if secret in answer.text]
    asked = await visitor.get(path, key, **query, team="chat")
    assert "hush" not in asked.text
    assert path in ("viewer", "backends") or asked.status_code == 403


async def test_another_team_s_request_is_not_found(visitor: Visitor, database: Database) -> None:
    await put(database, row(team="chat", request_id="req_hush", model_asked="hush"), row(request_id="req_own"))
    for key in ("lead", "app"):
        answer = await visitor.get("requests/req_hush", key)
        assert (answer.status_code, "hush" in answer.text) == (404, False)
    assert (await visitor.get("requests/req_hush", "chat")).status_code == 200
    assert (await visitor.get("requests/req_hush", "admin")).json()["flight"]["team"] == "chat"
    assert (await visitor.get("requests/req_none", "admin")).status_code == 404


async def test_an_inference_key_sees_its_own_requests_and_with_share_those_of_its_team(
    visitor: Visitor, database: Database
) -> None:
    own = visitor.ids["app"]
    await put(database, row(request_id="req_own", key_id=own), row(request_id="req_other", key_id="key_shop"))
    assert await ids(visitor, "app") == ["req_own"]
    assert await ids(visitor, "app", key="key_shop") == []
    assert (await visitor.get("requests/req_own", "app")).status_code == 200
    assert (await visitor.get("requests/req_other", "app")).status_code == 404
    assert sorted(await ids(visitor, "lead")) == ["req_other", "req_own"]
    shared = {"team": "open", "key_id": "key_shop"}
    await put(database, row(request_id="req_a", **shared), row(request_id="req_b", **shared | {"key_id": "key_help"}))
    assert sorted(await ids(visitor, "open")) == ["req_a", "req_b"]
    assert (await visitor.get("requests/req_a", "open")).status_code == 200
    assert (await visitor.get("requests/req_own", "open")).status_code == 404
    assert (await visitor.get("data", "open")).status_code == 403  # figures need the scope usage


async def test_a_request_is_shown_with_its_phases_and_in_words(visitor: Visitor, database: Database) -> None:
    weak = row(request_id="req_two", outcome="escalated", backend="small", first_byte_ms=20.0, cost_pico=USD // 4)
    await put(database, weak, row(request_id="req_two", attempt=2, waited_ms=1500, duration_ms=900.0))
    answer = (await visitor.get("requests/req_two", "lead")).json()
    assert [(one["backend"], one["start_ms"], one["first_byte_ms"], one["end_ms"]) for one in answer["phases"]] == [
        ("small", 0.0, 20.0, 100.0),
        ("large", 1500.0, None, 2400.0),
    ]
    words = "\n".join(answer["sentences"])
    assert "small was not sure enough, so a stronger backend was asked." in words
    assert "Cost in all: $1.25." in words
    assert (answer["request"]["cost_usd"], answer["request"]["escalated"]) == ("1.25", True)


async def test_what_clients_wrote_comes_as_data(visitor: Visitor, database: Database) -> None:
    await put(database, row(request_id="req_x", model_asked=HOSTILE, tags=orjson.dumps({"a": HOSTILE}).decode()))
    answer = await visitor.get("requests/req_x", "lead")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json()["request"]["model_asked"] == HOSTILE


async def test_exports_are_csv_that_no_spreadsheet_runs(visitor: Visitor, database: Database) -> None:
    await put(database, row(request_id="req_x", model_asked="=cmd()", session="+1", cost_pico=USD // 2))
    answer = await visitor.get("requests", "lead", format="csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="requests.csv"'
    (line,) = csv.DictReader(io.StringIO(answer.text))
    assert (line["id"], line["model_asked"], line["session"], line["cost_usd"]) == ("req_x", "'=cmd()", "'+1", "0.5")
    (line,) = csv.DictReader(io.StringIO((await visitor.get("export", "lead")).text))
    assert (line["day"], line["model"], line["cost_usd"]) == ("2027-01-15", "big", "0.5")


async def test_groups_lead_from_key_to_session(visitor: Visitor, database: Database) -> None:
    await put(
        database,
        row(end_user="eu-1", session="s-1", cost_pico=2 * USD),
        row(end_user="eu-1", session="s-2"),
        row(end_user="eu-2", session="s-3", key_id="key_help"),
        row(request_id="req_alone"),
        row(simulated=True, cost_pico=None, end_user="eu-3"),
    )

    async def groups(**query: str) -> list[tuple[str, str]]:
        rows: list[dict[str, Any]] = (await visitor.get("groups", "lead", **query)).json()["rows"]
        return [(one[query["by"]], one["cost_usd"]) for one in rows]

    assert await groups(by="key") == [("key_shop", "4"), ("key_help", "1")]
    assert await groups(by="end_user", key="key_shop") == [("eu-1", "3"), ("", "1")]
    assert await groups(by="session", key="key_shop", end_user="(none)") == [("", "1")]
    assert await ids(visitor, end_user="(none)") == ["req_alone"]
    assert await groups(by="session", key="key_shop", end_user="eu-1") == [("s-1", "2"), ("s-2", "1")]


async def test_an_admin_sees_all_teams_at_a_glance(visitor: Visitor, database: Database) -> None:
    await traffic(database)
    text = orjson.dumps({"id": "a1", "text": "half is gone"}).decode()
    alert = {"id": "a1", "team": "chat", "created_at": NOW, "payload": text, "target": ""}
    await database.run(lambda connection: connection.execute(insert(alerts), [alert]))
    found = (await visitor.get("teams", "admin", period="month")).json()
    rows = {one["team"]: one for one in found["teams"]}
    assert {team: one["cost_usd"] for team, one in rows.items()} == {"chat": "7", "search": "8.75"}
    assert (rows["chat"]["open_alerts"], rows["search"]["failed"], found["open_alerts"]) == (1, 1, 1)
    assert found["total"]["cost_usd"] == "15.75"
    assert found["stack"]["names"] == ["search", "chat"]
    assert {one["team"] for one in found["team_savings"]["teams"]} == {"chat", "search"}
    # 8.75 USD within the 6.5 days that the pace looks at; 16.5 days are left.
    assert rows["search"]["pace"]["usd"].startswith("30.96")
    for key in ("lead", "app"):
        assert (await visitor.get("teams", key)).status_code == 403


async def test_an_admin_acknowledges_an_alert(visitor: Visitor, database: Database) -> None:
    text = orjson.dumps({"id": "a1", "text": "half is gone"}).decode()
    alert = {"id": "a1", "team": "search", "created_at": NOW, "payload": text, "target": ""}
    await database.run(lambda connection: connection.execute(insert(alerts), [alert]))
    assert (await visitor.get("data", "lead")).json()["open_alerts"] == 1
    assert (await visitor.post("alerts", "lead", id="a1")).status_code == 403
    assert (await visitor.post("alerts", "admin", id="a2")).status_code == 404
    assert (await visitor.post("alerts", "admin", id="a1")).status_code == 200
    figures = (await visitor.get("data", "lead")).json()
    assert (figures["open_alerts"], figures["alerts"][0]["acknowledged"]["by"]) == (0, visitor.ids["admin"])


def _about(budget: str, end: float, **facts: Any) -> dict[str, Any]:
    """A row of an alert about a budget whose window ends at `end`."""
    id = facts.pop("id")
    text = {"id": id, "text": id, "budget": budget, "window_start": iso(end - DAY), "window_end": iso(end), **facts}
    severity = facts.get("severity", "info")
    made = {"id": id, "team": "search", "created_at": NOW, "payload": orjson.dumps(text).decode(), "target": ""}
    return {**made, "severity": severity}


async def test_a_budget_has_one_alert_per_window_and_none_is_open_when_the_window_is_over(
    visitor: Visitor, database: Database
) -> None:
    rows = [
        _about("daily", NOW + DAY, id="half", severity="info", at=iso(NOW)),
        _about("daily", NOW + DAY, id="gone", severity="critical", at=iso(NOW)),
        _about("daily", NOW - 60, id="yesterday", severity="critical", at=iso(NOW - DAY)),
        _about("monthly", NOW + DAY, id="month", severity="warning", at=iso(NOW)),
    ]
    await database.run(lambda connection: connection.execute(insert(alerts), rows))
    figures = (await visitor.get("data", "lead")).json()
    assert figures["open_alerts"] == 2
    shown = [(one["id"], one["open"]) for one in figures["alerts"]]
    assert (set(shown[:2]), shown[2:]) == ({("month", True), ("gone", True)}, [("yesterday", False)])


async def test_a_call_begins_after_the_failed_call_before_it(visitor: Visitor, database: Database) -> None:
    await put(
        database,
        row(request_id="req_retried", outcome="failed", duration_ms=40.0),
        row(request_id="req_retried", attempt=2, duration_ms=100.0, first_byte_ms=10.0),
        row(request_id="req_retried", attempt=3, kind="hedge", duration_ms=100.0),
    )
    phases = (await visitor.get("requests/req_retried", "lead")).json()["phases"]
    assert [(one["start_ms"], one["end_ms"], one["after_another"]) for one in phases] == [
        (0.0, 40.0, False),
        (40.0, 140.0, True),
        (0.0, 100.0, False),
    ]
    assert phases[1]["first_byte_ms"] == 50.0


async def test_an_alert_about_a_key_has_the_name_of_the_key(visitor: Visitor, database: Database) -> None:
    _, key = await asyncio.to_thread(keys.create, database, "search", name="Web shop", scopes=("usage",))
    facts = {"key": key.id, "window": "day", "spent_usd": "1", "limit_usd": "2", "severity": "info"}
    row = _about("daily", NOW + DAY, id="one", at=iso(NOW), **facts)
    await database.run(lambda connection: connection.execute(insert(alerts), [row]))
    (alert,) = (await visitor.get("data", "lead", parts="alerts")).json()["alerts"]
    assert (alert["budget"]["per"], alert["budget"]["who"]) == ("key", "Web shop")


def test_only_demo_teams_of_the_demo_organisation_are_invented() -> None:
    teams = {"demo-search": {"organisation": "demo"}, "demo-app": {}, "search": {"organisation": "demo"}}
    prices = PriceBook.load()
    scope = Scope("search", parse_period("7", NOW), policies(teams).current, prices, (), {})
    assert [team for team in teams if scope.invented(team)] == ["demo-search"]
