"""What a client asks before it asks anything."""

from __future__ import annotations

import pytest
from anthropic.types import ModelInfo
from openai.types import Model

from gateway.api.routes.models import visible_models
from gateway.domain.policy import DataPolicy, Policy
from gateway.domain.tenant import Key, Tenant
from tests.api.conftest import Api

ANTHROPIC = {"anthropic-version": "2023-06-01"}
NAMES = ["auto", "mine", "ours", "small", "model-small", "far", "model-far"]


async def test_the_root_is_open_and_tells_nothing(api: Api) -> None:
    for method in ("GET", "HEAD"):
        client = await api.send("/", key="", method=method)
        assert (client.status, client.headers["content-type"]) == (200, "application/json")


async def test_the_root_leads_a_browser_to_the_page(api: Api) -> None:
    client = await api.send("/", key="", headers={"accept": "text/html,*/*;q=0.8"})
    assert (client.status, client.headers["location"]) == (302, "dashboard")


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
async def test_models_are_those_that_the_policy_knows(api: Api, path: str) -> None:
    listed = await api.send(path)
    assert listed.json["object"] == "list"
    owners = {row["id"]: row["owned_by"] for row in listed.json["data"]}
    ours = {"auto": "thriftgate", "mine": "small", "ours": "thriftgate"}
    assert owners == ours | dict.fromkeys(("small", "model-small", "far", "model-far"), "openai")
    assert all(Model.model_validate(row, strict=True) for row in listed.json["data"])


async def test_one_model_is_shown_as_it_is_listed(api: Api) -> None:
    for headers in ({}, ANTHROPIC):
        for row in (await api.send("/v1/models", headers=headers)).json["data"]:
            assert (await api.send(f"/v1/models/{row['id']}", headers=headers)).json == row
    missing = await api.send("/v1/models/gpt-99")
    assert (missing.status, missing.error["code"], missing.error["param"]) == (404, "model_not_found", "model")
    missing = await api.send("/v1/models/claude-99", headers=ANTHROPIC)
    assert (missing.status, missing.json["type"], missing.json["error"]["type"]) == (404, "error", "not_found_error")


async def test_anthropics_clients_see_models_as_anthropics(api: Api) -> None:
    listed = (await api.send("/v1/models", headers=ANTHROPIC)).json
    assert [row["id"] for row in listed["data"]] == NAMES
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "auto", "model-far")
    for row in listed["data"]:
        assert ModelInfo.model_validate(row).display_name == row["id"]
        assert row["type"] == "model"
    assert listed["data"][3]["max_input_tokens"] == 8000


@pytest.mark.parametrize(
    ("query", "names", "more"),
    [
        ("limit=2", NAMES[:2], True),
        ("limit=7", NAMES, False),
        ("limit=2&after_id=mine", NAMES[2:4], True),
        ("after_id=small", NAMES[4:], False),
        ("after_id=model-far", [], False),
        ("limit=2&before_id=small", NAMES[1:3], True),
        ("before_id=mine", ["auto"], False),
    ],
)
async def test_models_come_in_pages(api: Api, query: str, names: list[str], more: bool) -> None:
    page = (await api.send("/v1/models", query=query, headers=ANTHROPIC)).json
    assert [row["id"] for row in page["data"]] == names
    assert page["has_more"] is more


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=1001", "after_id=gpt-99", "before_id=gpt-99"])
async def test_a_page_that_there_is_not_is_a_400(api: Api, query: str) -> None:
    page = await api.send("/v1/models", query=query, headers=ANTHROPIC)
    assert (page.status, page.json["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    "rule",
    [DataPolicy(hosted="forbidden"), DataPolicy(regions=("eu",)), DataPolicy(hosted="forbidden", regions=("us",))],
)
def test_backends_that_the_data_rule_forbids_are_not_shown(api: Api, rule: DataPolicy) -> None:
    names = dict(visible_models(Tenant(Key("k", "a"), Policy(team="a", data=rule)), api.gateway.fleet))
    assert "far" not in names
    assert "auto" in names


async def test_a_name_that_fits_a_pattern_of_the_policy_is_found_though_no_pattern_is_listed(api: Api) -> None:
    assert (await api.send("/v1/models/own-thing")).json["id"] == "own-thing"
    assert not any("*" in row["id"] for row in (await api.send("/v1/models")).json["data"])
