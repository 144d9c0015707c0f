"""The routes around inference: each team sees its own, and only that."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select

from gateway.errors import InvalidKey
from gateway.ledger.reports.turns import MOST_WAITING
from gateway.policy import keys
from gateway.policy.keys import Keys
from gateway.policy.load import Policies
from gateway.policy.tenants import Tenants
from gateway.settings.gateway import Ceilings
from gateway.state.sql.database import Database
from gateway.state.sql.tables import feedback
from tests.api.conftest import Api
from tests.fakes.provider import Fail, Raw, Reply
from tests.support.requests import small_body


async def served(api: Api, key: str = "search", **fields: Any) -> str:
    """The id of an answered request."""
    client = await api.client(small_body("hello", **fields), key=key).run()
    assert client.status == 200
    return client.headers["x-request-id"]


# -- flight records ------------------------------------------------------------------------------------------------


async def test_a_flight_record_is_for_the_key_that_asked_and_its_teams_admin(api: Api) -> None:
    await api.key("colleague")
    await api.key("admin of search", "search", "admin")
    await api.key("stranger", "other", "inference", "admin")
    path = f"/v1/requests/{await served(api)}"
    own = await api.send(path)
    assert own.status == 200
    assert own.json["attempts"][0]["backend"] == "small"
    assert b"hello" not in own.body
    assert (await api.send(path, key="admin of search")).status == 200
    for key in ("colleague", "stranger"):
        assert (await api.send(path, key=key)).status == 404
    assert (await api.send("/v1/requests/req_nothing")).status == 404


async def test_feedback_is_heard_once_per_key_and_request(api: Api) -> None:
    request_id = await served(api)
    path = f"/v1/requests/{request_id}/feedback"
    for rating in ("bad", "good"):
        said = await api.send(path, method="POST", body=orjson.dumps({"rating": rating}))
        assert (said.status, said.json) == (201, {"heard": True})
    rows = await api.gateway.database.run(lambda link: link.execute(select(feedback)).all())
    assert [(row.request_id, row.score, row.backend) for row in rows] == [(request_id, 1.0, "small")]


@pytest.mark.parametrize("body", [b"{}", b"[]", b"{", b'{"rating": "meh"}', b'{"score": 2}', b'{"stars": 5}'])
async def test_feedback_that_says_nothing_is_a_400(api: Api, body: bytes) -> None:
    path = f"/v1/requests/{await served(api)}/feedback"
    said = await api.send(path, method="POST", body=body)
    assert (said.status, said.error["type"]) == (400, "invalid_request_error")


async def test_feedback_on_another_keys_request_is_not_heard(api: Api) -> None:
    await api.key("stranger", "other")
    path = f"/v1/requests/{await served(api)}/feedback"
    said = await api.send(path, method="POST", key="stranger", body=b'{"rating": "bad"}')
    assert said.status == 404


# -- usage ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def spent(api: Api) -> Api:
    """Two teams with a request each, five output tokens for search and nine for other."""
    await api.key("other", "other")
    await api.key("figures", "search", "usage")
    await api.key("other's figures", "other", "usage")
    await api.key("admin", "ops", "admin")
    api.gateway.provider.script(Reply(tokens=5), Reply(tokens=9))
    await served(api)
    await served(api, key="other")
    await api.gateway.rows()
    return api


async def tokens(api: Api, key: str, query: str = "") -> int:
    client = await api.send("/v1/usage", key=key, query=query)
    assert client.status == 200, client.body
    found: int = client.json["total"]["output_tokens"]
    return found


async def test_a_team_sees_its_own_spend(spent: Api) -> None:
    assert await tokens(spent, "figures") == 5
    assert await tokens(spent, "other's figures") == 9
    assert await tokens(spent, "figures", "since=1h&by=backend") == 5
    assert await tokens(spent, "figures", "until=1h") == 0


@pytest.mark.parametrize("query", ["team=other", "team=", "team=other&team=search", "team=%2A"])
async def test_a_teams_usage_key_cannot_name_another_team(spent: Api, query: str) -> None:
    client = await spent.send("/v1/usage", key="figures", query=query + "&by=team")
    assert client.json["total"]["output_tokens"] == 5
    assert b"other" not in client.body


async def test_an_admin_key_may_name_another_team(spent: Api) -> None:
    assert await tokens(spent, "admin", "team=search") == 5
    assert await tokens(spent, "admin", "team=other") == 9
    assert await tokens(spent, "admin") == 0


async def test_savings_and_budgets_are_told_when_they_are_asked_for(spent: Api) -> None:
    told = (await spent.send("/v1/usage", key="figures", query="by=outcome&savings=true")).json
    assert [row["outcome"] for row in told["rows"]] == ["ok"]
    assert told["total"]["cost_usd"] == told["rows"][0]["cost_usd"]
    assert [one["team"] for one in told["savings"]["teams"]] == ["search"]
    assert told["budgets"] == told["credits"] == []
    assert "savings" not in (await spent.send("/v1/usage", key="figures")).json


async def test_an_admin_sees_all_teams_at_once_and_nobody_else_does(spent: Api) -> None:
    told = (await spent.send("/admin/usage", key="admin", query="by=team")).json
    assert {row["team"]: row["output_tokens"] for row in told["rows"]} == {"search": 5, "other": 9}
    one = (await spent.send("/admin/usage", key="admin", query="team=other")).json
    assert one == (await spent.send("/v1/usage", key="other's figures")).json
    assert (await spent.send("/admin/usage", key="figures")).status == 403
    assert (await spent.send("/admin/usage", key="admin", query="by=x")).status == 400


async def test_a_key_for_inference_alone_sees_no_money(spent: Api) -> None:
    assert (await spent.send("/v1/usage", key="search")).status == 403


@pytest.mark.parametrize("query", ["since=yesterday", "until=x", "by=nothing", "by="])
async def test_a_report_that_makes_no_sense_is_a_400(spent: Api, query: str) -> None:
    client = await spent.send("/v1/usage", key="figures", query=query)
    assert (client.status, client.error["code"]) == (400, "invalid_request")


async def test_a_team_that_asks_for_its_usage_all_the_time_delays_no_other_team(spent: Api) -> None:
    ended: list[tuple[str, int]] = []

    async def ask(key: str) -> None:
        ended.append((key, (await spent.send("/v1/usage", key=key)).status))

    await asyncio.gather(*(ask("figures") for _ in range(2 * MOST_WAITING)), ask("other's figures"))
    assert ended.count(("figures", 200)) == MOST_WAITING
    assert ended.count(("figures", 503)) == MOST_WAITING
    assert [key for key, status in ended if status == 200].index("other's figures") < 5


# -- health and metrics --------------------------------------------------------------------------------------------


async def test_metrics_are_for_admins_and_parse(spent: Api) -> None:
    assert (await spent.send("/metrics", key="figures")).status == 403
    shown = await spent.send("/metrics", key="admin")
    assert shown.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(shown.body.decode())}
    teams = {sample.labels["team"] for sample in families["thriftgate_requests"].samples}
    assert teams == {"search", "other"}


async def test_health_tells_the_parts_but_no_address_and_no_team(api: Api) -> None:
    await api.key("stranger", "other")
    well = await api.send("/health", key="")
    assert (well.status, well.json["status"]) == (200, "ok")
    assert well.json["parts"] == dict.fromkeys(("workers", "state", "keys", "policies", "upstream"), "ok")
    more = await api.send("/health", key="stranger")
    assert more.json["parts"]["backends"] == {"small": "ok", "far": "ok"}
    for told in (well, more):
        assert b"127.0.0.1" not in told.body
        assert b"search" not in told.body
    (api.folder / "search.yaml").write_text("nonsense: 1\n")
    await api.policies.reload()
    ill = await api.send("/health", key="")
    assert ill.json["status"] == "degraded"
    assert ill.json["parts"]["policies"] == "stale"
    ill = await api.send("/health", key="stranger")
    assert ill.json["parts"]["policies"].startswith("stale: the last reload was refused")
    assert b"nonsense" not in ill.body


async def test_ready_means_that_keys_are_known_and_nothing_is_shut_down(api: Api) -> None:
    assert (await api.send("/health/live", key="")).status == 200
    assert (await api.send("/health/ready", key="")).status == 200
    api.drain.draining = True
    assert (await api.send("/health/ready", key="")).status == 503
    assert (await api.send("/health/live", key="")).status == 200
    api.drain.draining = False
    api.ring.ready = False
    assert (await api.send("/health/ready", key="")).status == 503
    assert "keys" in (await api.send("/health/ready", key="")).json["why"]
    await asyncio.sleep(0)


async def test_a_backend_that_refuses_the_gateways_key_degrades_health_but_not_readiness(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    api.gateway.provider.script(Fail(401), Fail(401))
    for _ in range(2):
        client = await api.client(small_body("hello", model="mine")).run()
        assert (client.status, client.headers["x-should-retry"]) == (502, "false")
        assert "Try again" not in client.error["message"]
        assert "thriftgate doctor" in client.error["message"]
    assert (await api.send("/health/ready", key="")).status == 200
    told = (await api.send("/health", key="")).json
    assert (told["status"], told["parts"]["upstream"]) == ("degraded", "a backend fails")
    assert "does not accept the gateway's key" in (await api.send("/health")).json["parts"]["backends"]["small"]
    assert len([each for each in caplog.messages if "backend small does not answer" in each]) == 1
    await served(api, model="mine")
    assert (await api.send("/health", key="")).json["status"] == "ok"


QUOTE = "cannot answer 'the merger is on Friday'"
_BODY = b'{"error": {"message": "%s", "type": "server_error"}}' % QUOTE.encode()
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_BODY) + _BODY


@pytest.mark.parametrize(
    ("step", "stream"),
    [(Reply(tokens=3, error_event=QUOTE, after=1), True), (Raw((_ANSWER,)), True), (Raw((_ANSWER,)), False)],
    ids=["event", "no stream", "plain"],
)
async def test_a_backends_text_about_one_teams_request_is_not_shown_to_others_or_logged(
    api: Api, caplog: pytest.LogCaptureFixture, step: Reply | Raw, stream: bool
) -> None:
    await api.key("stranger", "other-team")
    api.gateway.provider.script(*[step] * 20)
    heard = ""
    for number in range(10):
        client = await api.client(small_body(f"hello {number}", model="mine", stream=stream)).run()
        heard += client.body.decode()
    assert QUOTE in heard, "who asked may read it"
    shown = (await api.send("/health", key="stranger")).json["parts"]["backends"]["small"]
    assert "with an error" in shown or "event stream" in shown
    assert QUOTE not in shown
    assert any("backend small does not answer" in each for each in caplog.messages)
    assert QUOTE not in caplog.text


async def test_an_unknown_key_is_explained_without_the_directory_and_logged_with_it_once(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    ring = Keys(database)
    await ring.refresh()
    tenants = Tenants(ring, await asyncio.to_thread(Policies, [], Ceilings()), kept_in="the data directory /secret")
    for _ in range(3):
        with pytest.raises(InvalidKey, match=r"thriftgate keys list.*thriftgate status") as caught:
            await tenants.find(b"tg-unknown")
        assert "/secret" not in caught.value.message
    (line,) = caplog.messages
    assert "the data directory /secret" in line
    assert "tg-unknown" not in line


async def test_a_key_that_was_just_created_is_not_logged_as_unknown(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    ring = Keys(database)
    await ring.refresh()
    tenants = Tenants(ring, await asyncio.to_thread(Policies, [], Ceilings()), kept_in="the data directory /secret")
    secret, key = await asyncio.to_thread(keys.create, database, "search")
    assert (await tenants.find(secret.encode())).key.id == key.id
    assert caplog.messages == []
