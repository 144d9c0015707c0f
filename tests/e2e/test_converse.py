"""AWS's SDK (botocore, which boto3 is made of) against a gateway: signed requests, streams, errors, ledger."""

from __future__ import annotations

import asyncio
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

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
