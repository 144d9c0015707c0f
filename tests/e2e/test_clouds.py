"""OpenAI's and Anthropic's SDKs through the served gateway to the clouds of AWS and Google, with their bill."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from anthropic import AsyncAnthropic

from loadtests.ports import free_port
from tests.e2e.conftest import client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.bedrock import MODELS, Bedrock
from tests.fakes.google import CLAUDE, GEMINI, KEY, LOCATION, PROJECT, Google, key_pair
from tests.support.gateway import eventually

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: bedrock-claude, kind: bedrock, base_url: "{aws}", region: eu-central-1, model: "{claude}"}}
  - {{name: nova, kind: bedrock, base_url: "{aws}", region: eu-central-1, model: "{nova}",
      price: {{input: 1, cached_input: 0.5, output: 4}}}}
  - {{name: vertex-claude, kind: vertex, base_url: "{google}", project: {project}, region: {location},
      model: "{vertex_claude}", google_credentials: "file:{account}"}}
  - {{name: vertex-gemini, kind: vertex, base_url: "{google}", project: {project}, region: {location},
      model: {gemini}, google_credentials: "file:{account}"}}
  - {{name: studio, kind: gemini, base_url: "{google}/v1beta", api_key: env:GEMINI_API_KEY, model: {gemini}}}
local_model: {{enabled: false}}
"""
COSTS = {
    "bedrock-claude": 9 * 3_300_000 + 5 * 330_000 + 4 * 16_500_000,
    "nova": 9 * 1_000_000 + 5 * 500_000 + 4 * 4_000_000,
    "vertex-claude": 9 * 3_300_000 + 5 * 330_000 + 4 * 16_500_000,
    "vertex-gemini": 9 * 300_000 + 5 * 30_000 + 7 * 2_500_000,
    "studio": 9 * 300_000 + 5 * 30_000 + 7 * 2_500_000,
}
"""Pico-dollars of the tokens that the fakes report, at list prices; Claude costs a tenth more in a region."""
HELLO: list[Any] = [{"role": "user", "content": "Say hello"}]


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    return free_port(), free_port()


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return key_pair(tmp_path_factory.mktemp("keys"))[1]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: tuple[int, int], public: Path) -> Iterator[GatewayProcess]:
    folder, (aws, google) = tmp_path_factory.mktemp("clouds"), (f"http://127.0.0.1:{port}" for port in ports)
    account = folder / "account.json"
    facts = {"type": "service_account", "client_email": Google().email, "private_key_id": "key-1"}
    private = public.with_name("private.pem").read_text()
    account.write_bytes(orjson.dumps({**facts, "private_key": private, "token_uri": f"{google}/token"}))
    places = {"project": PROJECT, "location": LOCATION, "account": account, "gemini": GEMINI}
    config = CONFIG.format(
        aws=aws, google=google, claude=MODELS[0], nova=MODELS[1], vertex_claude=CLAUDE, **places
    )  # fmt: skip
    secrets = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret", "GEMINI_API_KEY": KEY}
    with GatewayProcess(folder / "home", config, {"plain": "cache: {enabled: false}\n"}, secrets) as process:
        yield process


@pytest.fixture
async def clouds(ports: tuple[int, int], public: Path) -> AsyncIterator[tuple[Bedrock, Google]]:
    aws, google = Bedrock(), Google(public)
    aws.port, google.port = ports
    async with aws, google:
        yield aws, google


def billed(gateway: GatewayProcess, backend: str) -> list[int]:
    with closing(sqlite3.connect(gateway.home / "data" / "ledger.sqlite")) as link:
        asked = "SELECT cost_pico FROM ledger WHERE outcome = 'ok' AND backend = ?"
        return [row[0] for row in link.execute(asked, (backend,))]


@pytest.mark.parametrize("model", COSTS)
async def test_every_sdk_is_answered_and_every_answer_is_billed(
    gateway: GatewayProcess, clouds: tuple[Bedrock, Google], model: str
) -> None:
    clouds[1].tokens = set()  # a server of this test has never given the gateway's token
    key, before = await gateway.key("plain"), len(await asyncio.to_thread(billed, gateway, model))
    expected = "Hello from " + ("Claude" if "claude" in model else "Nova" if model == "nova" else "Gemini")
    async with client(gateway, key) as sdk, AsyncAnthropic(base_url=gateway.base, api_key=key, max_retries=0) as other:
        answer = await sdk.chat.completions.create(model=model, messages=HELLO)
        assert answer.choices[0].message.content == expected
        chunks = await sdk.chat.completions.create(model=model, messages=HELLO, stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices]) == expected
        assert (await sdk.responses.create(model=model, input="Say hello")).output_text == expected
        message: Any = await other.messages.create(model=model, max_tokens=50, messages=HELLO)
        assert message.content[0].text == expected
        async with other.messages.stream(model=model, max_tokens=50, messages=HELLO) as stream:
            assert "".join([text async for text in stream.text_stream]) == expected
    rows = await eventually(lambda: asyncio.to_thread(billed, gateway, model), lambda found: len(found) >= before + 5)
    assert rows[before:] == [COSTS[model]] * 5
    assert not clouds[0].refused
