"""OpenAI's and Anthropic's SDKs through the served gateway to an Azure resource that checks address and credentials."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import openai
import orjson
import pytest
from anthropic import AsyncAnthropic

from loadtests.ports import free_port
from tests.e2e.conftest import client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.azure import Azure, Resource
from tests.fakes.provider import Raw
from tests.support.gateway import eventually
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: by-version, kind: azure, base_url: "http://127.0.0.1:{port}", api_key: env:AZURE_KEY, model: gpt-4o,
      deployment: our 4o, api_version: "2024-10-21", capabilities: [tools, json_schema]}}
  - {{name: by-token, kind: azure, base_url: "http://127.0.0.1:{port}", bearer_token: "file:{token}",
      model: gpt-4o-mini, capabilities: [tools, json_schema]}}
  - {{name: nobody, kind: azure, base_url: "http://127.0.0.1:{port}", api_key: env:AZURE_KEY, model: gpt-4o,
      deployment: deleted}}
local_model: {{enabled: false}}
"""
KEY, TOKEN = "azure-key-0123456789", "eyJ0-entra-token"
USER = {"role": "user", "content": "the word is zebra"}
VERDICT = {"hate": {"filtered": False, "severity": "safe"}}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("azure")
    token = folder / "token"
    token.write_text(TOKEN)
    config = CONFIG.format(port=port, token=token)
    policies = {"plain": "cache: {enabled: false}\n"}
    with GatewayProcess(folder / "home", config, policies, {"AZURE_KEY": KEY}) as process:
        yield process


@pytest.fixture
async def azure(port: int) -> AsyncIterator[Azure]:
    resource = Azure(Resource(frozenset({"our 4o", "gpt-4o-mini"}), keys={KEY}, tokens={TOKEN}))
    resource.port = port
    async with resource:
        yield resource


async def cost(gateway: GatewayProcess, request_id: str) -> dict[str, Any]:
    """The ledger's row of the request's answered call, once there is one."""

    def look() -> dict[str, Any]:
        with closing(sqlite3.connect(gateway.home / "data" / "ledger.sqlite")) as link:
            link.row_factory = sqlite3.Row
            found = link.execute("SELECT * FROM ledger WHERE outcome = 'ok' AND request_id = ?", (request_id,))
            return dict(found.fetchone() or {})

    return await eventually(lambda: asyncio.to_thread(look))


def events(*choices: Any) -> bytes:
    """A stream as Azure writes it: first what the content filter thinks of the prompt, last the usage."""
    first = {"choices": [], "created": 0, "id": "", "model": "", "object": "",
             "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": VERDICT}]}  # fmt: skip
    shared = {"id": "chatcmpl-1", "created": 1, "model": "gpt-4o-2024-08-06", "object": "chat.completion.chunk"}
    usage = {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
    chunks = [
        first,
        *({**shared, "choices": [choice]} for choice in choices),
        {**shared, "choices": [], "usage": usage},
    ]
    body = b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


def spoken(*words: str) -> bytes:
    begun = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    said = [
        {"index": 0, "delta": {"content": word}, "finish_reason": None, "content_filter_results": VERDICT}
        for word in words
    ]
    return events(begun, *said, {"index": 0, "delta": {}, "finish_reason": "stop", "content_filter_results": {}})


@pytest.mark.parametrize("model", ["by-version", "by-token"])
async def test_chat_streams_tools_and_embeddings_with_openais_sdk(
    gateway: GatewayProcess, azure: Azure, model: str
) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    plain = await sdk.chat.completions.create(model=model, messages=[USER])
    assert plain.usage is not None
    azure.script(Raw((spoken("ze", "bra"),)))
    text = ""
    async for chunk in await sdk.chat.completions.create(model=model, messages=[USER], stream=True):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == "zebra"
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    await sdk.chat.completions.create(model=model, messages=[USER], tools=[tool])
    assert azure.last.json["tools"] == [tool]
    await sdk.embeddings.create(model=model, input="zebra")
    if model == "by-version":
        assert {each.path.rpartition("/chat")[0] or each.path for each in azure.asked} == {
            "/openai/deployments/our%204o", "/openai/deployments/our%204o/embeddings",
        }  # fmt: skip
        assert all(each.query == {"api-version": "2024-10-21"} for each in azure.asked)
        assert all(each.credentials == {"api-key": KEY} for each in azure.asked)
    else:
        assert {each.path for each in azure.asked} == {"/openai/v1/chat/completions", "/openai/v1/embeddings"}
        assert all((each.query, each.model) == ({}, "gpt-4o-mini") for each in azure.asked)
        assert all(each.credentials == {"authorization": f"Bearer {TOKEN}"} for each in azure.asked)


async def test_every_answer_is_booked_at_the_models_list_price(gateway: GatewayProcess, azure: Azure) -> None:
    azure.script(Raw((spoken("ze", "bra"),)))
    sdk = client(gateway, await gateway.key("plain"))
    stream = await sdk.chat.completions.create(model="by-version", messages=[USER], stream=True)
    async for _ in stream:
        pass
    row = await cost(gateway, stream.response.headers["x-request-id"])
    assert (row["backend"], row["input_tokens"], row["output_tokens"]) == ("by-version", 11, 2)
    assert row["cost_pico"] == 11 * 2_500_000 + 2 * 10_000_000  # gpt-4o: 2.50 and 10 USD per 1M tokens


async def test_messages_of_anthropics_sdk_are_translated(gateway: GatewayProcess, azure: Azure) -> None:
    key = await gateway.key("plain")
    async with AsyncAnthropic(base_url=gateway.base, api_key=key, max_retries=0) as sdk:
        azure.script(Raw((spoken("ze", "bra"),)))
        async with sdk.messages.stream(model="by-version", max_tokens=20, messages=[USER]) as stream:  # type: ignore[list-item]
            assert await stream.get_final_text() == "zebra"
        with pytest.raises(anthropic.BadRequestError, match="content management policy"):
            await sdk.messages.create(
                model="by-version", max_tokens=20, messages=[{"role": "user", "content": "FILTER ME"}]
            )


async def test_azures_refusals_reach_openais_sdk_and_no_secret_does(gateway: GatewayProcess, azure: Azure) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    with pytest.raises(openai.BadRequestError) as filtered:
        await sdk.chat.completions.create(model="by-version", messages=[{"role": "user", "content": "FILTER ME"}])
    assert filtered.value.code == "content_filter"
    with pytest.raises(openai.InternalServerError, match="`deployment` and `api_version`") as unknown:
        await sdk.chat.completions.create(model="nobody", messages=[USER])
    azure.resource.keys = {"another"}
    with pytest.raises(openai.InternalServerError, match="check its `api_key`") as denied:
        await sdk.chat.completions.create(model="by-version", messages=[USER])
    assert all(KEY not in str(each.value) for each in (filtered, unknown, denied))


async def test_a_new_token_is_used_without_a_restart(gateway: GatewayProcess, azure: Azure, tmp_path: Path) -> None:
    sdk = client(gateway, await gateway.key("plain"))

    async def accepted() -> object:
        return await sdk.chat.completions.create(model="by-token", messages=[USER])

    await until(accepted, not_yet=(openai.APIStatusError,))  # a run before this one may have left the second token
    token = gateway.home.parent / "token"
    token.write_text("eyJ0-second")
    azure.resource.tokens = {"eyJ0-second"}
    try:
        await until(accepted, 60, not_yet=(openai.APIStatusError,))
        assert azure.asked[-1].credentials == {"authorization": "Bearer eyJ0-second"}
    finally:
        token.write_text(TOKEN)
