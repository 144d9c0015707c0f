"""AWS's SDK (botocore, which boto3 is made of) against a gateway: signed requests, streams, errors, ledger."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import botocore.session
import orjson
import pytest
from anthropic import AsyncAnthropicBedrock
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from tests.e2e.conftest import Providers
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Reply
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(120)  # processes start, on a machine that is busy

HELLO = [{"role": "user", "content": [{"text": "hello"}]}]


def connect(gateway: GatewayProcess, key: str) -> Any:
    """The gateway's key is the access key id, as a signature names it."""
    session = botocore.session.Session()
    session.set_credentials(key, "anything")
    once = Config(retries={"total_max_attempts": 1}, proxies={})
    return session.create_client("bedrock-runtime", "eu-central-1", endpoint_url=gateway.base, config=once)


@pytest.mark.parametrize("model", ["small", "claude"])
async def test_an_answer_is_awss_and_on_the_ledger(gateway: GatewayProcess, providers: Providers, model: str) -> None:
    before = (await asyncio.to_thread(gateway.usage, "plain"))["total"]["requests"]
    client = await asyncio.to_thread(connect, gateway, await gateway.key("plain"))
    provider = providers.small if model == "small" else providers.claude
    provider.script(Reply("Hi there"), Reply("Hi again"))
    whole = await asyncio.to_thread(lambda: client.converse(modelId=model, messages=HELLO))
    assert whole["output"]["message"]["content"] == [{"text": "Hi there"}]
    assert (whole["stopReason"], whole["usage"]["outputTokens"] > 0) == ("end_turn", True)
    events = await asyncio.to_thread(lambda: list(client.converse_stream(modelId=model, messages=HELLO)["stream"]))
    texts = [each["contentBlockDelta"]["delta"]["text"] for each in events if "contentBlockDelta" in each]
    assert "".join(texts) == "Hi again"
    assert events[-1]["metadata"]["usage"]["outputTokens"] > 0

    async def booked() -> bool:
        total = (await asyncio.to_thread(gateway.usage, "plain"))["total"]
        return bool(total["requests"] >= before + 2)

    await until(booked)


@pytest.mark.parametrize(
    ("known", "model", "code"),
    [(False, "small", "UnrecognizedClientException"), (True, "nobody", "ResourceNotFoundException")],
)
async def test_errors_are_exceptions_of_the_sdk(gateway: GatewayProcess, known: bool, model: str, code: str) -> None:
    client = await asyncio.to_thread(connect, gateway, await gateway.key("plain") if known else "tg-nobody")
    with pytest.raises(ClientError) as refused:
        await asyncio.to_thread(lambda: client.converse(modelId=model, messages=HELLO))
    assert refused.value.response["Error"]["Code"] == code


BODY = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize("model", ["small", "claude"])
async def test_invoke_model_takes_and_gives_anthropics_bodies(
    gateway: GatewayProcess, providers: Providers, model: str
) -> None:
    client = await asyncio.to_thread(connect, gateway, await gateway.key("plain"))
    provider = providers.small if model == "small" else providers.claude
    provider.script(Reply("Hi there"), Reply("Hi again"))
    body = orjson.dumps(BODY)
    whole = await asyncio.to_thread(lambda: client.invoke_model(modelId=model, body=body)["body"].read())
    message = orjson.loads(whole)
    assert (message["content"], message["stop_reason"]) == ([{"type": "text", "text": "Hi there"}], "end_turn")
    assert message["usage"]["output_tokens"] > 0

    def events() -> list[dict[str, Any]]:
        stream = client.invoke_model_with_response_stream(modelId=model, body=body)["body"]
        return [orjson.loads(each["chunk"]["bytes"]) for each in stream]

    found = await asyncio.to_thread(events)
    texts = [each["delta"]["text"] for each in found if each["type"] == "content_block_delta"]
    assert "".join(texts) == "Hi again"
    assert (found[0]["type"], found[-1]["type"]) == ("message_start", "message_stop")
    sent = orjson.loads(provider.exchanges[-1].body)
    assert "anthropic_version" not in sent


async def test_anthropics_own_bedrock_client_is_served(gateway: GatewayProcess, providers: Providers) -> None:
    providers.claude.script(Reply("Hi there"), Reply("Hi again"))
    key = await gateway.key("plain")
    async with AsyncAnthropicBedrock(
        aws_access_key=key, aws_secret_key="anything", aws_region="eu-central-1", base_url=gateway.base, max_retries=0
    ) as sdk:
        asked: Any = {"model": "claude", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}
        message = await sdk.messages.create(**asked)
        assert message.content[0].text == "Hi there"
        async with sdk.messages.stream(**asked) as stream:
            assert "".join([text async for text in stream.text_stream]) == "Hi again"


async def test_a_broken_stream_is_an_exception_of_invoke_model(gateway: GatewayProcess, providers: Providers) -> None:
    client = await asyncio.to_thread(connect, gateway, await gateway.key("plain"))
    providers.claude.script(Reply("one two three four five", error_event="scripted end", after=3))

    def events() -> list[Any]:
        body = orjson.dumps(BODY)
        with closing(client.invoke_model_with_response_stream(modelId="claude", body=body)["body"]) as stream:
            return list(stream)

    with pytest.raises(EventStreamError, match="The stream of claude broke"):
        await asyncio.to_thread(events)


@pytest.mark.parametrize(
    ("change", "field"), [({"anthropic_version": None}, "anthropic_version"), ({"messages": None}, "messages")]
)
async def test_a_body_that_is_not_anthropics_is_refused_by_invoke_model(
    gateway: GatewayProcess, change: dict[str, Any], field: str
) -> None:
    client = await asyncio.to_thread(connect, gateway, await gateway.key("plain"))
    with pytest.raises(ClientError) as refused:
        await asyncio.to_thread(lambda: client.invoke_model(modelId="claude", body=orjson.dumps({**BODY, **change})))
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert field in refused.value.response["Error"]["Message"]
