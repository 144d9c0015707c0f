"""Every client dialect over every backend dialect, with the vendors' SDKs: answers, streams, tools, and what breaks."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.e2e.talkers import ERRORS, TALKERS, TOOL, Chat, Messages, Talker
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
backends:
  - {{name: chat, kind: openai, base_url: "http://127.0.0.1:{chat}/v1", model: a-chat-model, tier: small,
      capabilities: [tools], price: {{input: 1, output: 4}}}}
  - {{name: messages, kind: anthropic, base_url: "http://127.0.0.1:{messages}/v1", model: claude-scripted, tier: hosted,
      capabilities: [tools], price: {{input: 3, output: 15}}}}
  - {{name: responses, kind: openai, base_url: "http://127.0.0.1:{responses}/v1", model: a-response-model,
      dialects: [openai_responses], tier: hosted, capabilities: [tools], price: {{input: 2, output: 8}}}}
local_model: {{enabled: false}}
"""
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
POLICIES = {"off": "cache: {enabled: false}\ncontext: {enabled: false}\n", "on": "models: {mine: auto}\n"}


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in PATHS}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("pairs") / "home"
    with GatewayProcess(home, CONFIG.format(**ports), POLICIES, {}) as process:
        yield process


@pytest.fixture(params=list(PATHS))
async def provider(
    request: pytest.FixtureRequest, ports: dict[str, int], gateway: GatewayProcess
) -> AsyncIterator[Provider]:
    """Behind the backend whose name is the dialect that it speaks, and no other."""
    async with Provider(port=ports[request.param], speaks=(PATHS[request.param],)) as provider:
        yield provider
        provider.forget()
        await recovered(gateway, request.param)


async def recovered(gateway: GatewayProcess, backend: str) -> None:
    """No failure of one test counts in the next."""
    talker = Chat(gateway.base, await gateway.key("off"))
    async with asyncio.timeout(60):
        while True:
            with suppress(*ERRORS):
                await talker.complete(backend, "Are you well?")
                break
            await asyncio.sleep(0.1)
    await talker.close()


@pytest.fixture
def backend(provider: Provider, request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["provider"])


@pytest.fixture(params=list(TALKERS))
async def talker(request: pytest.FixtureRequest, gateway: GatewayProcess) -> AsyncIterator[Talker]:
    made = TALKERS[request.param](gateway.base, await gateway.key("off"))
    yield made
    await made.close()


def token() -> str:
    return f"tok-{secrets.token_hex(8)}"


async def test_a_plain_answer_repeats_what_was_asked(talker: Talker, backend: str, provider: Provider) -> None:
    word = token()
    said = await talker.complete(backend, f"Repeat {word} to me")
    assert word in said.text
    assert said.text == provider.last.text_sent
    assert provider.last.path == PATHS[backend]
    assert provider.last.usage is not None
    assert (said.input_tokens, said.output_tokens) == (provider.last.usage.all_input, provider.last.usage.all_output)
    assert said.headers["x-thriftgate-backend"] == backend
    assert said.headers["x-request-id"] == said.headers["request-id"]


async def test_a_stream_says_the_same_piece_by_piece(talker: Talker, backend: str, provider: Provider) -> None:
    word = token()
    pieces = [piece async for piece in talker.stream(backend, f"Repeat {word} to me, please, and take your time")]
    assert "".join(pieces) == provider.last.text_sent
    assert len(pieces) > 3
    assert talker.last is not None
    assert word in talker.last.text
    assert provider.last.usage is not None
    assert talker.last.output_tokens == provider.last.usage.all_output
    assert talker.last.input_tokens == provider.last.usage.all_input


async def test_pieces_come_when_they_are_said(talker: Talker, backend: str, provider: Provider) -> None:
    provider.script(Reply(tokens=5, drip_s=0.15))
    seen = [provider.last.chunks_sent async for _ in talker.stream(backend, "Slowly")]
    assert seen[0] < seen[-1], "the client had the first piece before the last one was said"
    assert seen == sorted(seen)


async def test_a_tool_is_called_and_hears_its_result(talker: Talker, backend: str, provider: Provider) -> None:
    word = token()
    provider.script(Reply(tool=TOOL), Reply())
    asked, told = await talker.use_tool(backend, f"Look up {word}")
    ((name, arguments),) = asked.calls
    assert name == TOOL
    assert word in arguments["query"]
    assert told.text
    assert word in provider.last.body.decode().replace("\\", "")
    assert b"done: " in provider.last.body


@pytest.mark.parametrize("streamed", [False, True])
async def test_unicode_arrives_whole(talker: Talker, backend: str, provider: Provider, streamed: bool) -> None:
    provider.script(Reply(text="¿Qué tal, señor? Ação 日本語 🌈👩‍👩‍👧", split=True, crlf=True))
    if streamed:
        said = "".join([piece async for piece in talker.stream(backend, "hola")])
    else:
        said = (await talker.complete(backend, "hola")).text
    assert said == "¿Qué tal, señor? Ação 日本語 🌈👩‍👩‍👧"


@pytest.mark.parametrize(
    "broken",
    [
        Reply(tokens=20, cut="fin", after=5),
        Reply(tokens=20, cut="rst", after=5),
        Reply(tokens=20, cut="fin", after=5, inside=True),
        Reply(tokens=20, error_event="the engine stopped", after=5),
    ],
    ids=["closed", "reset", "torn", "said so"],
)
async def test_a_broken_stream_never_ends_as_a_whole_one(
    talker: Talker, backend: str, provider: Provider, broken: Reply
) -> None:
    provider.script(broken)
    pieces = []

    async def listen() -> None:
        async for piece in talker.stream(backend, "Tell me a story"):
            pieces.append(piece)  # noqa: PERF401 - what came before it broke counts

    with pytest.raises(ERRORS):
        await listen()
    assert talker.last is None
    assert pieces


async def test_who_hangs_up_ends_the_call_and_pays_for_what_came(
    talker: Talker, backend: str, provider: Provider, gateway: GatewayProcess
) -> None:
    provider.script(Reply(tokens=500, drip_s=0.02))
    stream: Any = talker.stream(backend, "Tell me a long story")
    async for _ in stream:
        break
    await stream.aclose()
    await until(lambda: provider.last.hung_up)
    assert provider.last.chunks_sent < 400


async def test_who_hangs_up_before_the_first_token_ends_the_call(
    talker: Talker, backend: str, provider: Provider
) -> None:
    provider.script(Reply(delay_s=20.0))
    before = len(provider.exchanges)
    asking = asyncio.create_task(talker.complete(backend, "Are you there?"))
    await until(lambda: len(provider.exchanges) > before)
    asking.cancel()
    await until(lambda: provider.last.hung_up)


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (Fail(400, "the image cannot be read", code="invalid_image"), 400),
        (Fail(429, "slow down", retry_after="1"), 429),
        (Fail(500, "it broke"), 502),
        (Fail(502, "<html>nginx</html>", body="html"), 502),
        (Fail(503, "too much to do"), 503),
        (Fail(404, "<html>nginx</html>", body="html"), 502),
        (Fail(200, body="garbage"), 502),
    ],
    ids=["400", "429", "500", "html", "503", "404 html", "garbage"],
)
async def test_errors_come_as_the_sdks_own(
    talker: Talker, backend: str, provider: Provider, step: Fail, status: int
) -> None:
    provider.script(step, step, step)
    with pytest.raises(ERRORS) as caught:
        await talker.complete(backend, "hello")
    if status == 503 and isinstance(talker, Messages):
        status = 529
    assert caught.value.status_code == status
    body = str(caught.value.body) + str(caught.value)
    assert "html" not in body
    assert "scripted" not in body
    if status == 429:
        assert not isinstance(caught.value, ConnectionError)
        assert caught.value.response.headers["retry-after"] == "1"
    if step.code:
        assert "the image cannot be read" in body


async def test_what_the_backend_cannot_do_is_told_by_the_clients_own_name_for_it(
    gateway: GatewayProcess, ports: dict[str, int]
) -> None:
    talker = Messages(gateway.base, await gateway.key("off"))
    async with Provider(port=ports["responses"], speaks=(PATHS["responses"],)) as provider:
        with pytest.raises(ERRORS) as caught:
            await talker.complete("responses", "hello", stop_sequences=["\n\n"])
        assert not provider.exchanges
    assert "stop_sequences" in str(caught.value)
    await talker.close()


async def test_a_backend_that_kept_failing_is_still_asked_while_there_is_no_other(
    gateway: GatewayProcess, provider: Provider, backend: str
) -> None:
    """What it says now is worth more to the client than that it rests."""
    talker = Chat(gateway.base, await gateway.key("off"))
    for step, status in ((Fail(500), 502), (Fail(529), 503), (Fail(401), 502), (Fail(429, retry_after="30"), 429)):
        for _ in range(4):
            provider.forget()
            provider.script(step, step)
            with pytest.raises(ERRORS) as caught:
                await talker.complete(backend, "hello")
            assert caught.value.status_code == status  # type: ignore[union-attr]
    provider.forget()
    for _ in range(3):
        assert (await talker.complete(backend, "hello")).text
    await talker.close()
