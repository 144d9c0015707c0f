"""The scripted provider does what its script says, and remembers what really happened."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from gateway.domain.money.usage import Usage
from tests.fakes.provider import Fail, Provider, Raw, Reply

QUESTION: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "two words"}]}
STREAM: dict[str, Any] = {**QUESTION, "stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def data(body: bytes) -> list[Any]:
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")]
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


async def post(session: aiohttp.ClientSession, provider: Provider, body: Any, path: str = "/chat/completions") -> bytes:
    async with session.post(provider.url + path, json=body) as response:
        return await response.read()


async def test_a_plain_openai_answer_echoes_the_user_and_counts_its_tokens(
    provider: Provider, session: aiohttp.ClientSession
) -> None:
    answer = orjson.loads(await post(session, provider, QUESTION))
    assert answer["choices"][0]["message"]["content"] == "You said: two words"
    assert answer["usage"]["prompt_tokens"] == 2
    assert answer["usage"]["completion_tokens"] == 4
    assert provider.last.usage == Usage(input_tokens=2, output_tokens=4)
    assert provider.last.text_sent == "You said: two words"
    assert provider.last.whole


async def test_a_streamed_openai_answer_is_one_token_a_chunk_then_usage_then_done(
    provider: Provider, session: aiohttp.ClientSession
) -> None:
    provider.script(Reply(text="a b c", cached_tokens=1, reasoning="hm hm"))
    body = await post(session, provider, STREAM)
    events = data(body)
    texts = [event["choices"][0]["delta"].get("content") for event in events if event["choices"]]
    assert [text for text in texts if text] == ["a", " b", " c"]
    assert events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 1
    assert events[-1]["usage"]["completion_tokens"] == 5
    assert body.endswith(b"data: [DONE]\n\n")
    assert provider.last.usage == Usage(input_tokens=1, cached_tokens=1, output_tokens=3, reasoning_tokens=2)


async def test_usage_is_streamed_only_when_asked_for(provider: Provider, session: aiohttp.ClientSession) -> None:
    body = await post(session, provider, {**QUESTION, "stream": True})
    assert b"usage" not in body


async def test_anthropic_streams_its_events_in_order(provider: Provider, session: aiohttp.ClientSession) -> None:
    provider.script(Reply(text="a b", cached_tokens=1, cache_write_1h_tokens=1, reasoning="hm"))
    events = data(await post(session, provider, {**QUESTION, "stream": True, "max_tokens": 9}, "/messages"))
    assert [event["type"] for event in events] == [
        "message_start",
        "ping",
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["usage"]["cache_read_input_tokens"] == 1
    assert events[0]["message"]["usage"]["cache_creation"]["ephemeral_1h_input_tokens"] == 1
    assert events[-2]["usage"]["output_tokens"] == 3


async def test_a_tool_is_called_on_demand_on_both_wires(provider: Provider, session: aiohttp.ClientSession) -> None:
    provider.script(*[Reply(tool="look_up")] * 4)
    openai = orjson.loads(await post(session, provider, QUESTION))
    assert openai["choices"][0]["finish_reason"] == "tool_calls"
    assert orjson.loads(openai["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == {
        "query": "two words"
    }
    anthropic = orjson.loads(await post(session, provider, QUESTION, "/messages"))
    assert anthropic["stop_reason"] == "tool_use"
    assert anthropic["content"][0]["input"] == {"query": "two words"}
    parts = [
        call["function"]["arguments"]
        for event in data(await post(session, provider, STREAM))
        if event["choices"]
        for call in event["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert orjson.loads("".join(parts)) == {"query": "two words"}
    streamed = data(await post(session, provider, {**QUESTION, "stream": True}, "/messages"))
    pieces = [event["delta"]["partial_json"] for event in streamed if event["type"] == "content_block_delta"]
    assert orjson.loads("".join(pieces)) == {"query": "two words"}


async def test_max_tokens_cuts_the_answer_with_finish_length(
    provider: Provider, session: aiohttp.ClientSession
) -> None:
    provider.script(Reply(tokens=50))
    answer = orjson.loads(await post(session, provider, {**QUESTION, "max_tokens": 3}))
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3


async def test_log_probabilities_come_when_asked_for(provider: Provider, session: aiohttp.ClientSession) -> None:
    provider.script(Reply(logprob=-0.5))
    answer = orjson.loads(await post(session, provider, {**QUESTION, "logprobs": True}))
    assert {row["logprob"] for row in answer["choices"][0]["logprobs"]["content"]} == {-0.5}


@pytest.mark.parametrize("claim", ["absent", "zero", "wrong", "negative", "nonsense"])
async def test_a_lie_about_usage_leaves_the_truth_on_the_exchange(
    provider: Provider, session: aiohttp.ClientSession, claim: Any
) -> None:
    provider.script(Reply(usage=claim))
    answer = orjson.loads(await post(session, provider, QUESTION))
    assert answer.get("usage", {}).get("completion_tokens") != 4
    assert provider.last.usage == Usage(input_tokens=2, output_tokens=4)


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/chat/completions", 429, "requests"),
        ("/chat/completions", 500, "server_error"),
        ("/messages", 429, "rate_limit_error"),
        ("/messages", 529, "overloaded_error"),
    ],
)
async def test_a_failure_has_the_shape_of_its_vendor(
    provider: Provider, session: aiohttp.ClientSession, path: str, status: int, kind: str
) -> None:
    provider.script(Fail(status, retry_after="7"))
    async with session.post(provider.url + path, json=QUESTION) as response:
        assert response.status == status
        assert response.headers["retry-after"] == "7"
        assert orjson.loads(await response.read())["error"]["type"] == kind


async def test_markers_steer_it_from_the_prompt_or_the_model_name(
    provider: Provider, session: aiohttp.ClientSession
) -> None:
    prompt = {"model": "m", "messages": [{"role": "user", "content": "x [[reply tokens=2]]"}]}
    assert orjson.loads(await post(session, provider, prompt))["choices"][0]["message"]["content"] == "t0 t1 "
    async with session.post(
        provider.url + "/chat/completions", json={**QUESTION, "model": "m[[fail status=503 message=so+it+goes]]"}
    ) as response:
        assert response.status == 503
        assert b"so it goes" in await response.read()
    assert b"has no field" in await post(session, provider, {**QUESTION, "model": "m[[reply token=2]]"})


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("inside", [False, True])
async def test_a_stream_is_cut_after_so_many_tokens(
    provider: Provider, session: aiohttp.ClientSession, how: Any, inside: bool
) -> None:
    provider.script(Reply(tokens=5, cut=how, after=2, inside=inside))
    async with session.post(provider.url + "/chat/completions", json=STREAM) as response:
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientOSError)):
            await response.read()
    assert provider.last.tokens_sent == 2
    assert provider.last.finished
    assert not provider.last.whole


async def test_it_notices_when_the_client_hangs_up_and_after_how_many_chunks(
    provider: Provider, session: aiohttp.ClientSession
) -> None:
    provider.script(Reply(tokens=9, cut="hang", after=3), Fail(cut="hang"))
    async with session.post(provider.url + "/chat/completions", json=STREAM) as response:
        while b"t2" not in await response.content.readany():
            pass
        response.close()
    await provider.settled()
    assert provider.last.hung_up
    assert provider.last.chunks_sent == 3
    with pytest.raises(TimeoutError):
        await session.post(provider.url + "/chat/completions", json=QUESTION, timeout=aiohttp.ClientTimeout(total=0.05))
    await provider.settled()
    assert provider.last.hung_up
    assert provider.last.chunks_sent == 0


async def test_odd_streams_still_carry_the_same_events(provider: Provider, session: aiohttp.ClientSession) -> None:
    provider.script(Reply(text="añ b", crlf=True), Reply(text="añ b", split=True), Reply(text="añ b", framing="eof"))
    for _ in range(3):
        body = await post(session, provider, STREAM)
        assert data(body)[1]["choices"][0]["delta"]["content"] == "añ"
    provider.script(Reply(text="a b", huge=300_000), Reply(text="a", done=False), Reply(error_event="broke", after=1))
    assert max(len(line) for line in (await post(session, provider, STREAM)).splitlines()) > 300_000
    assert b"[DONE]" not in await post(session, provider, STREAM)
    assert data(await post(session, provider, STREAM))[-1]["error"]["message"] == "broke"


@pytest.mark.parametrize("body", ["garbage", "html", "empty", "truncated"])
async def test_a_body_that_is_no_answer(provider: Provider, session: aiohttp.ClientSession, body: Any) -> None:
    provider.script(Fail(200, body=body))
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(await post(session, provider, QUESTION))


async def test_raw_bytes_go_out_as_given(provider: Provider) -> None:
    provider.script(Raw((b"HTTP/1.1 200 OK\r\n", 0.001, b"nonsense"), then="fin"))
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
    assert await reader.read() == b"HTTP/1.1 200 OK\r\nnonsense"
    writer.close()


async def test_it_can_refuse_connections_and_listen_again(provider: Provider, session: aiohttp.ClientSession) -> None:
    await provider.refuse()
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(session, provider, QUESTION)
    await provider.listen()
    assert b"You said" in await post(session, provider, QUESTION)


async def test_a_wrong_key_and_an_unknown_path_are_refused(session: aiohttp.ClientSession) -> None:
    async with Provider(api_key="right") as provider:
        assert b"invalid_api_key" in await post(session, provider, QUESTION)
        assert b"Incorrect API key" in await post(session, provider, QUESTION, "/nowhere")
        async with session.get(provider.url + "/models", headers={"authorization": "Bearer right"}) as response:
            assert [row["id"] for row in (await response.json())["data"]] == ["scripted-small", "scripted-large"]


def test_it_runs_as_a_process_of_its_own_and_writes_what_it_answered(tmp_path: Path) -> None:
    async def run() -> bytes:
        command = [sys.executable, "-m", "tests.fakes.provider", "--record", str(tmp_path / "record.jsonl")]
        process = await asyncio.create_subprocess_exec(*command, "--tokens", "2", stdout=asyncio.subprocess.PIPE)
        assert process.stdout
        url = (await process.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession() as session, session.post(url + "/chat/completions", json=QUESTION) as answer:
            body = await answer.read()
        process.terminate()
        await process.wait()
        return body

    assert b"t0 t1" in asyncio.run(run())
    row = orjson.loads((tmp_path / "record.jsonl").read_bytes())
    assert row["output_tokens"] == 2
    assert row["whole"] is True


async def test_a_dropped_connection_is_really_reset() -> None:
    async with Provider() as provider:
        provider.script(Fail(cut="rst"))
        with socket.create_connection(("127.0.0.1", provider.port)) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, b"POST /v1/messages HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
            with pytest.raises(ConnectionResetError):
                await loop.sock_recv(client, 1)
