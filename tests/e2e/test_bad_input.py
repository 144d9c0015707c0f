"""What goes wrong is told in the client's shape, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.conftest import Providers, client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Fail, Reply
from tests.support.gateway import eventually

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

ASK: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx.AsyncClient]:
    key = await gateway.key("plain")
    async with httpx.AsyncClient(
        timeout=30, base_url=gateway.base, headers={"authorization": f"Bearer {key}"}
    ) as open_client:
        yield open_client


def error_of(reply: httpx.Response) -> dict[str, Any]:
    """The error object, in OpenAI's shape."""
    error: dict[str, Any] = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(error["message"]) > 10
    assert reply.headers["x-request-id"]
    return error


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'"text"', None),
        (b'{"model": "small", "messages": [{"role": "user", "content": "\xff"}]}', None),
        (b'{"model": "small", "messages": [{"role": "user", "content": "\\ud800"}]}', None),
        (b'{"model": "small", "temperature": NaN, "messages": [{"role": "user", "content": "x"}]}', None),
        (b'{"model": "small", "messages": []}', "messages"),
        (b'{"model": "small"}', "messages"),
        (b'{"model": "small", "messages": "hello"}', "messages"),
        (b'{"model": 5, "messages": [{"role": "user", "content": "x"}]}', "model"),
        (b'{"messages": [{"role": "user", "content": "x"}]}', "model"),
        (b"[" * 5000, None),
    ],
)
async def test_a_body_that_makes_no_sense_is_a_400(http: httpx.AsyncClient, body: bytes, param: str | None) -> None:
    reply = await http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    error = error_of(reply)
    assert reply.status_code == 400
    assert error["type"] == "invalid_request_error"
    if param:
        assert error["param"] is not None
        assert error["param"].startswith(param)


async def test_the_wrong_content_type_is_told_so(http: httpx.AsyncClient) -> None:
    reply = await http.post("/v1/chat/completions", content=b"a=b", headers={"content-type": "text/plain"})
    assert reply.status_code == 415
    assert "application/json" in error_of(reply)["message"]


async def test_an_unknown_model_is_a_404_that_lists_what_exists(http: httpx.AsyncClient) -> None:
    reply = await http.post("/v1/chat/completions", json=ASK | {"model": "gpt-99"})
    error = error_of(reply)
    assert (reply.status_code, error["code"]) == (404, "model_not_found")
    assert "auto" in error["message"]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer tg-wrong"}, {"x-api-key": "sk-openai"}])
async def test_no_key_or_a_bad_one_is_a_401(gateway: GatewayProcess, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient(timeout=30, base_url=gateway.base, headers=headers) as nobody:
        reply = await nobody.post("/v1/chat/completions", json=ASK)
    assert (reply.status_code, error_of(reply)["code"]) == (401, "invalid_api_key")


async def test_an_expired_and_a_revoked_key_end(gateway: GatewayProcess, providers: Providers) -> None:
    short = await asyncio.to_thread(gateway.json, "keys", "create", "--team", "plain", "--expires", "1s")
    long = await asyncio.to_thread(gateway.json, "keys", "create", "--team", "plain")

    async def answer(key: str) -> str:
        async with httpx.AsyncClient(
            timeout=30, base_url=gateway.base, headers={"authorization": f"Bearer {key}"}
        ) as http:
            reply = await http.post("/v1/chat/completions", json=ASK)
        return "ok" if reply.status_code == 200 else str(error_of(reply)["message"])

    await eventually(lambda: answer(long["key"]), lambda found: found == "ok")
    await eventually(lambda: answer(short["key"]), lambda found: "has expired" in found)
    await asyncio.to_thread(gateway.run, "keys", "revoke", long["id"])
    await eventually(lambda: answer(long["key"]), lambda found: "was revoked" in found or "Incorrect" in found)
    with pytest.raises(openai.AuthenticationError):
        await client(gateway, long["key"]).chat.completions.create(**ASK)


async def test_a_body_over_the_limit_is_a_413(http: httpx.AsyncClient) -> None:
    reply = await http.post("/v1/chat/completions", json=ASK | {"padding": "x" * (21 * 2**20)})
    assert (reply.status_code, error_of(reply)["code"]) == (413, "request_too_large")


async def test_a_context_that_cannot_be_trimmed_is_told_with_its_size(
    gateway: GatewayProcess, providers: Providers
) -> None:
    messages: list[Any] = [{"role": "system", "content": "many words " * 3000}, {"role": "user", "content": "hello"}]
    with pytest.raises(openai.BadRequestError) as caught:
        await client(gateway, await gateway.key("short")).chat.completions.create(model="small", messages=messages)
    assert caught.value.code == "context_length_exceeded"


async def test_an_unreachable_backend_is_a_502_and_others_still_serve(gateway: GatewayProcess) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    with pytest.raises(openai.InternalServerError) as caught:
        await sdk.chat.completions.create(**ASK | {"model": "claude"})
    assert caught.value.status_code in (502, 503)
    assert caught.value.code == "all_backends_failed"


@pytest.mark.parametrize("body", ["garbage", "html", "empty", "truncated"])
async def test_garbage_from_a_backend_is_a_502_that_shows_none_of_it(
    gateway: GatewayProcess, providers: Providers, body: Any
) -> None:
    providers.large.script(Fail(200, body=body), Fail(200, body=body))
    with pytest.raises(openai.InternalServerError) as caught:
        await client(gateway, await gateway.key("plain")).chat.completions.create(**ASK | {"model": "large"})
    assert caught.value.status_code == 502
    assert "<html" not in str(caught.value).lower()


async def test_a_backends_own_400_is_passed_on_as_it_came(gateway: GatewayProcess, providers: Providers) -> None:
    providers.large.script(Fail(400, message="top_p out of range", code="bad_top_p", param="top_p"))
    with pytest.raises(openai.BadRequestError) as caught:
        await client(gateway, await gateway.key("plain")).chat.completions.create(**ASK | {"model": "large"})
    assert (caught.value.code, caught.value.param) == ("bad_top_p", "top_p")
    assert "top_p out of range" in str(caught.value)


async def test_a_cut_stream_ends_in_an_error_never_in_done(
    gateway: GatewayProcess, providers: Providers, http: httpx.AsyncClient
) -> None:
    providers.large.script(Reply(tokens=20, cut="fin", after=5))
    body = ASK | {"model": "large", "stream": True}
    async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
        text = (await reply.aread()).decode()
    assert '"error"' in text
    assert "[DONE]" not in text
    assert '"finish_reason":"stop"' not in text.replace(" ", "")
    providers.large.script(Reply(tokens=20, cut="rst", after=5))
    stream = await client(gateway, await gateway.key("plain")).chat.completions.create(**body)
    with pytest.raises(openai.APIError):
        [chunk async for chunk in stream]


async def test_a_bad_policy_keeps_the_last_good_one_and_health_says_so(gateway: GatewayProcess) -> None:
    async with httpx.AsyncClient(timeout=30, base_url=gateway.base) as nobody:

        async def policies() -> str:
            return str((await nobody.get("/health")).json()["parts"]["policies"])

        gateway.write_policy("plain", "cache: {enabled: maybe}\n")
        await eventually(policies, lambda state: state != "ok")
        gateway.write_policy("plain", "cache: {enabled: false}\n")
        await eventually(policies, lambda state: state == "ok")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/nothing", 404), ("POST", "/v1/models", 405)])
async def test_a_wrong_route_or_method_is_told_in_shape(
    http: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    reply = await http.request(method, path)
    assert reply.status_code == status
    error_of(reply)


async def test_get_on_the_endpoint_is_a_405(http: httpx.AsyncClient) -> None:
    reply = await http.get("/v1/chat/completions")
    assert (reply.status_code, error_of(reply)["code"]) == (405, "method_not_allowed")
