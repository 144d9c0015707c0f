"""Responses on WebSockets, with real clients: turns, continuation, money, disconnection, refusals, restarts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from loadtests.ports import free_port
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.naming import for_each_run, unique
from tests.support.waiting import until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy

CONFIG = """\
requests: {{socket_idle: 5s, max_body_bytes: 1000000}}
backends:
  - {{name: native, kind: openai, base_url: "http://127.0.0.1:{native}/v1", model: n1, tier: small,
      window_tokens: 8000, capabilities: [tools, reasoning], price: {{input: 1, output: 2}}}}
  - {{name: chatty, kind: openai, base_url: "http://127.0.0.1:{chatty}/v1", model: c1, tier: small,
      dialects: [openai_chat], window_tokens: 8000, capabilities: [tools, reasoning], price: {{input: 1, output: 2}}}}
local_model: {{enabled: false}}
"""
POLICIES = {
    "plain": "cache: {enabled: false}\n",
    "others": "cache: {enabled: false}\n",
    "cached": "cache: {scope: team}\n",
    **for_each_run({"slow": "limits: {requests_per_minute: 1}\ncache: {enabled: false}\n"}),
    "poor": "cache: {enabled: false}\nbudget: {limit_usd: 0.00001, window: day}\n",
    "storing": "cache: {enabled: false}\ndata: {store_prompts: true}\n",
}


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {name: free_port() for name in ("native", "chatty")}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[GatewayProcess]:
    with GatewayProcess(tmp_path_factory.mktemp("sockets") / "home", CONFIG.format(**ports), POLICIES) as process:
        yield process


@pytest.fixture
async def providers(ports: dict[str, int]) -> AsyncIterator[dict[str, Provider]]:
    async with Provider(port=ports["native"]) as native, Provider(port=ports["chatty"]) as chatty:
        yield {"native": native, "chatty": chatty}


def opened(gateway: GatewayProcess, key: str, path: str = "/v1/responses", **more: Any) -> connect:
    headers = {"authorization": f"Bearer {key}", "openai-beta": "responses_websockets=2026-02-06"}
    return connect(gateway.base.replace("http", "ws", 1) + path, additional_headers=headers, proxy=None, **more)


async def ask(socket: ClientConnection, text: str, **fields: Any) -> None:
    body = {"type": "response.create", "model": "native", "input": text, **fields}
    await socket.send(orjson.dumps(body).decode())


async def heard(socket: ClientConnection) -> list[dict[str, Any]]:
    """The events of one answer, or an error."""
    found: list[dict[str, Any]] = []
    while not found or found[-1]["type"] not in ("response.completed", "response.incomplete", "error"):
        found.append(orjson.loads(await asyncio.wait_for(socket.recv(), 30)))
    return found


async def answer(socket: ClientConnection, text: str, **fields: Any) -> dict[str, Any]:
    await ask(socket, text, **fields)
    last: dict[str, Any] = (await heard(socket))[-1]
    assert last["type"] == "response.completed", last
    return dict(last["response"])


async def refused(socket: ClientConnection) -> tuple[int, str]:
    (event,) = await heard(socket)
    assert event["type"] == "error"
    return event["status"], event["error"]["code"]


def said(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


@pytest.mark.parametrize("model", ["native", "chatty"])
@pytest.mark.parametrize("path", ["/v1/responses", "/responses"])
async def test_many_turns_on_one_socket_continue_and_each_is_on_the_ledger(
    gateway: GatewayProcess, providers: dict[str, Provider], model: str, path: str
) -> None:
    before = (await asyncio.to_thread(gateway.usage, "plain"))["total"]["requests"]
    async with opened(gateway, await gateway.key("plain"), path) as socket:
        providers[model].script(Reply("Blue."), Reply("Yes."), Reply("No."))
        await ask(socket, "Which colour?", model=model, instructions="Be brief", store=False)
        events = await heard(socket)
        assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
        assert "response.output_text.delta" in {event["type"] for event in events}
        first = events[-1]["response"]
        second = await answer(socket, "Sure?", model=model, previous_response_id=first["id"], store=False)
        assert said(second) == "Yes."
        sent = orjson.dumps(providers[model].last.json).decode()
        assert sent.index("Which colour?") < sent.index("Blue.") < sent.index("Sure?")
        assert "Be brief" not in sent, "instructions are those of each request"
        third = await answer(socket, "Green?", model=model)
        assert said(third) == "No."
        assert "Which colour?" not in orjson.dumps(providers[model].last.json).decode()

    async def booked() -> bool:
        total = (await asyncio.to_thread(gateway.usage, "plain"))["total"]
        return bool(total["requests"] >= before + 3)

    await until(booked)


async def test_only_the_last_response_of_the_same_socket_is_continued(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    key, other = await gateway.key("plain"), await gateway.key("others")
    async with opened(gateway, key) as socket, opened(gateway, other) as strangers:
        first = await answer(socket, "one")
        await ask(strangers, "two", previous_response_id=first["id"])
        assert await refused(strangers) == (400, "previous_response_not_found")
        await answer(socket, "three")
        await ask(socket, "four", previous_response_id=first["id"])
        assert await refused(socket) == (400, "previous_response_not_found")


async def test_a_stored_response_is_continued_on_another_socket(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    key = await gateway.key("storing")
    async with opened(gateway, key) as socket:
        first = await answer(socket, "the colour is blue")
        second = await answer(socket, "and green", previous_response_id=first["id"])
    async with opened(gateway, key) as socket:
        await answer(socket, "which?", previous_response_id=second["id"])
    sent = orjson.dumps(providers["native"].last.json)
    assert b"the colour is blue" in sent
    assert b"and green" in sent


async def test_a_beginning_that_is_sent_in_advance_costs_nothing_and_is_continued(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    async with opened(gateway, await gateway.key("plain")) as socket:
        await ask(socket, "long beginning", generate=False)
        created, completed = await heard(socket)
        assert (created["type"], completed["response"]["output"]) == ("response.created", [])
        assert not providers["native"].exchanges
        await answer(socket, "end", previous_response_id=completed["response"]["id"])
        assert b"long beginning" in orjson.dumps(providers["native"].last.json)


async def test_a_second_request_at_once_is_refused_and_the_first_goes_on(
    gateway: GatewayProcess, providers: dict[str, Provider]
) -> None:
    providers["native"].script(Reply(tokens=40, drip_s=0.05))
    async with opened(gateway, await gateway.key("plain")) as socket:
        await ask(socket, "one")
        begun = orjson.loads(await socket.recv())
        await ask(socket, "two")
        events = await heard(socket)
        while events[-1]["type"] != "error":
            events += await heard(socket)
        assert (events[-1]["status"], events[-1]["error"]["code"]) == (409, "response_in_progress")
        assert (await heard(socket))[-1]["response"]["id"] == begun["response"]["id"]
        assert len(providers["native"].exchanges) == 1


async def test_limits_budgets_and_errors_are_those_of_http(
    gateway: GatewayProcess, providers: dict[str, Provider], run: int
) -> None:
    async with opened(gateway, await gateway.key(f"slow-{run}")) as socket:
        await answer(socket, "one")
        await ask(socket, "two")
        (event,) = await heard(socket)
        assert (event["status"], event["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(event["headers"]["retry-after"]) > 0
    async with opened(gateway, await gateway.key("poor")) as socket:

        async def spent() -> bool:
            await ask(socket, "x " * 50)
            return bool((await heard(socket))[-1].get("status") == 429)

        await until(spent)
    async with opened(gateway, await gateway.key("plain")) as socket:
        await ask(socket, "hi", model="nobody")
        assert await refused(socket) == (404, "model_not_found")
        providers["native"].script(Fail(400, "no such tool"))
        await ask(socket, "hi")
        assert (await refused(socket))[0] == 400
        providers["native"].script(Reply(tokens=50, cut="rst", after=3))
        await ask(socket, "hi")
        broken = (await heard(socket))[-1]
        assert (broken["type"], broken["status"], broken["error"]["code"]) == ("error", 502, "stream_broken")
        assert said(await answer(socket, "hi")), "the socket goes on"


async def test_a_stored_answer_comes_as_events_too(gateway: GatewayProcess, providers: dict[str, Provider]) -> None:
    async with opened(gateway, await gateway.key("cached")) as socket:
        asked = unique("What is the capital of France?")
        one = await answer(socket, asked, temperature=0)

        async def stored() -> dict[str, Any] | None:
            """The answer, once it comes without a call. The cache takes it up behind the first answer."""
            before = len(providers["native"].exchanges)
            found = await answer(socket, asked, temperature=0)
            return found if len(providers["native"].exchanges) == before else None

        assert said(one) == said(await until(stored))


async def test_a_client_that_leaves_ends_its_request(gateway: GatewayProcess, providers: dict[str, Provider]) -> None:
    providers["native"].script(Reply(tokens=500, drip_s=0.05))
    async with opened(gateway, await gateway.key("plain")) as socket:
        await ask(socket, "long")
        await socket.recv()
    await until(lambda: providers["native"].last.hung_up)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"type": "session.update", "session": {"type": "realtime"}}, "type"),
        ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "type"),
        ({"type": "response.cancel"}, "type"),
        ({"type": "response.create", "model": "native", "input": "x", "stream_id": "a"}, "stream_id"),
        ({"type": "response.create", "model": "native", "input": "x", "background": True}, "background"),
        ({"type": "response.create", "input": "x"}, "model"),
        ([1], "type"),
    ],
)
async def test_other_messages_are_refused_by_name(gateway: GatewayProcess, message: Any, param: str) -> None:
    async with opened(gateway, await gateway.key("plain")) as socket:
        await socket.send(orjson.dumps(message).decode())
        (event,) = await heard(socket)
        assert (event["status"], event["error"]["param"]) == (400, param)


async def test_messages_that_are_no_json_are_refused_and_codexs_note_is_taken(gateway: GatewayProcess) -> None:
    async with opened(gateway, await gateway.key("plain")) as socket:
        await socket.send('{"type":"response.processed","response_id":"resp_1"}')
        for message in ("{", b"bytes"):
            await socket.send(message)
            assert (await refused(socket))[0] == 400


async def test_a_message_that_is_too_large_closes_the_socket(gateway: GatewayProcess) -> None:
    async with opened(gateway, await gateway.key("plain")) as socket:
        await ask(socket, "x" * 1_100_000)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


async def test_an_idle_socket_is_closed(gateway: GatewayProcess) -> None:
    async with opened(gateway, await gateway.key("plain")) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), 30)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1000, "idle for 5 seconds")


async def test_a_handshake_needs_a_key_and_a_path(gateway: GatewayProcess) -> None:
    for key, path, status in (
        ("tg-nobody", "/v1/responses", 401),
        ("tg-nobody", "/v1/chat/completions", 401),
        (await gateway.key("plain", "--scope", "usage"), "/v1/responses", 403),
        (await gateway.key("plain"), "/v1/realtime", 404),
        (await gateway.key("plain"), "/v1/models", 200),
    ):
        with pytest.raises(InvalidStatus) as answered:
            await opened(gateway, key, path)
        response = answered.value.response
        assert response.status_code == status
        if status != 200:
            message = orjson.loads(response.body or b"")["error"]["message"]
            assert ("Realtime" in message) == (path == "/v1/realtime")


async def test_a_revoked_key_ends_at_its_next_request(gateway: GatewayProcess, providers: dict[str, Provider]) -> None:
    made = await asyncio.to_thread(gateway.json, "keys", "create", "--team", "plain")
    async with opened(gateway, made["key"]) as socket:
        await answer(socket, "hi")
        await asyncio.to_thread(gateway.run, "keys", "revoke", made["id"])

        async def ended() -> bool:
            await ask(socket, "hi")
            return bool((await heard(socket))[-1].get("status") == 401)

        await until(ended)


async def test_openais_own_sdk(gateway: GatewayProcess, providers: dict[str, Provider]) -> None:
    providers["native"].script(Reply("Blue."), Reply("Yes."))
    client = AsyncOpenAI(
        base_url=f"{gateway.base}/v1",
        api_key=await gateway.key("plain"),
        http_client=httpx.AsyncClient(timeout=30, trust_env=False),
    )
    async with client, client.responses.connect() as connection:
        await connection.response.create(model="native", input="Which colour?")
        texts, last = [], ""
        async for event in connection:
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
            if event.type == "response.completed":
                last = event.response.id
                break
        assert "".join(texts) == "Blue."
        await connection.response.create(model="native", input="Sure?", previous_response_id=last)
        async for event in connection:
            if event.type == "response.completed":
                assert event.response.output_text == "Yes."
                break


async def test_a_roll_ends_sockets_after_their_answers(tmp_path: Path, ports: dict[str, int]) -> None:
    config = CONFIG.format(**ports).replace("socket_idle: 5s", "socket_idle: 5m")
    gateway = GatewayProcess(tmp_path / "home", config, POLICIES)
    await asyncio.to_thread(gateway.start)
    key = await gateway.key("plain")
    async with Provider(port=ports["native"], default=Reply(tokens=40, drip_s=0.1)):
        async with opened(gateway, key) as busy, opened(gateway, key) as idle:
            await ask(busy, "long")
            await busy.recv()
            before = set(gateway.facts["workers"])
            assert gateway.process
            gateway.process.send_signal(signal.SIGUSR2)
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(idle.recv(), 30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            assert (await heard(busy))[-1]["type"] == "response.completed"
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(busy.recv(), 30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        await until(partial(_replaced, gateway, before))
        async with opened(gateway, key) as again:
            await answer(again, "hi")
    assert await asyncio.to_thread(gateway.stop) == 0
    total = (await asyncio.to_thread(gateway.usage, "plain"))["total"]
    assert (total["requests"], total["interrupted"]) == (2, 0)


def _replaced(gateway: GatewayProcess, before: set[int]) -> bool:
    return not before & set(gateway.facts["workers"])
