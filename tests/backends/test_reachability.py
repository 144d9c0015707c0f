"""What is found out about backends without buying an answer."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from gateway.backends.reachability import Reached, reach, reach_all
from gateway.domain.backend import Backend
from loadtests.ports import free_port
from tests.fakes.provider import Provider


def backend(url: str, name: str = "it", **more: object) -> Backend:
    facts = {"kind": "openai", "model": "scripted-small", "api_key": SecretStr("sk-good"), **more}
    return Backend.model_validate({"name": name, "base_url": url, **facts})


async def test_a_backend_that_answers_is_asked_for_its_models_and_for_nothing_else() -> None:
    async with Provider() as provider:
        found = await reach(backend(provider.url))
        assert (found.trouble, found.note) == ("", "")
        assert found.took_ms is not None
        assert [(each.method, each.path) for each in provider.exchanges] == [("GET", "/v1/models")]
        assert provider.exchanges[0].header(b"authorization") == b"Bearer sk-good"
        assert (await reach(backend(provider.url, model="other"))).doubt == "its list of models does not have other"


async def test_a_connection_that_is_refused_and_an_address_that_is_none_are_told_with_a_remedy() -> None:
    refused, simulated = await reach_all(
        [
            backend(f"http://127.0.0.1:{free_port()}/v1", "gone"),
            Backend(name="toy", kind="simulated", model="toy"),
        ]
    )
    assert refused == Reached(
        "gone", "cannot be reached: the connection was refused; check its `base_url` and that it is running"
    )
    assert simulated == Reached("toy", note="simulated, not a real model")


async def test_a_key_that_is_refused_is_told_and_a_list_that_is_missing_is_no_trouble() -> None:
    async with Provider(api_key="sk-another") as provider:
        found = await reach(backend(provider.url))
        assert found.trouble == "does not accept the gateway's key; check its `api_key` (status 401)"
    async with Provider() as provider:
        found = await reach(backend(provider.url.replace("/v1", "/v2")))
        assert (found.trouble, found.note[:7]) == ("", "answers")


@pytest.mark.parametrize(
    ("kind", "more", "header"),
    [
        ("anthropic", {}, b"x-api-key"),
        ("gemini", {}, b"x-goog-api-key"),
        ("azure", {"deployment": "d"}, b"api-key"),
        ("bedrock", {"region": "eu-west-1"}, None),
    ],
)
async def test_each_kind_authenticates_in_its_own_way(kind: str, more: dict[str, object], header: bytes | None) -> None:
    async with Provider() as provider:
        found = await reach(backend(provider.url, kind=kind, **more))
        assert found.trouble == ""
        (exchange,) = provider.exchanges
        if header is None:
            assert b"sk-good" not in [value for _, value in exchange.headers]
        else:
            assert exchange.header(header) == b"sk-good"
