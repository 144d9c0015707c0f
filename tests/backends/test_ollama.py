"""Kind `ollama` against a local server with Ollama's own API: addresses, window, key, streams that end badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from gateway.backends.reachability import reach
from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest
from gateway.errors import BackendRefused, ContextTooLong, GatewayError, StreamBroken
from tests.backends.conftest import CallerOf, backend_at
from tests.fakes.caller import Caller, read
from tests.fakes.ollama import MODEL, Ollama, done, line, said
from tests.fakes.provider import Provider, Reply
from tests.fakes.scripted import Body, Pieces, Refuse
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request, completions_request, request_in
from tests.support.waiting import until

KEY = "ollama-key"
CLIENTS = (
    *("openai_chat", "anthropic_messages", "openai_responses"),
    *("openai_completions", "gemini_generate", "bedrock_converse", "ollama_chat"),
)


@pytest.fixture
async def server() -> AsyncIterator[Ollama]:
    async with Ollama(key=KEY) as server:
        yield server


def backend(server: Ollama, **changes: Any) -> Backend:
    fields = {"name": "o", "kind": "ollama", "base_url": server.url, "api_key": SecretStr(KEY), "model": MODEL}
    return Backend.model_validate({**fields, **changes})


@pytest.fixture
def caller(server: Ollama, caller_of: CallerOf) -> Caller:
    return caller_of(backend(server))


def events(data: bytes) -> list[Any]:
    return [orjson.loads(each[6:]) for each in data.split(b"\n\n") if each.startswith(b"data: {")]


def text(data: bytes) -> str:
    choices = [choice for event in events(data) for choice in event["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def streaming(**fields: Any) -> CompletionRequest:
    return chat_request(stream=True, stream_options={"include_usage": True}, **fields)


@pytest.mark.parametrize("client", CLIENTS)
async def test_every_client_is_answered_and_every_answer_is_counted(
    client: str, server: Ollama, caller: Caller
) -> None:
    answer = await caller.call(request_in(client, stream=False))
    assert b"Hello from Ollama" in await read(answer)
    assert answer.attempt.usage == Usage(14, output_tokens=4)
    asked = server.asked[-1]
    assert asked.path == ("/v1/completions" if client == "openai_completions" else "/api/chat")
    assert (asked.body["model"], asked.headers["authorization"]) == (MODEL, f"Bearer {KEY}")


async def test_vectors_come_from_the_servers_own_endpoint(server: Ollama, caller: Caller) -> None:
    answer = await caller.call(request_in("openai_embeddings", ["one", "two"]))
    assert len(orjson.loads(await read(answer))["data"]) == 2
    assert (server.asked[-1].path, server.asked[-1].body["truncate"]) == ("/api/embed", False)
    assert answer.attempt.usage == Usage(3)


async def test_text_is_inserted_through_the_servers_openai_api(server: Ollama, caller: Caller) -> None:
    await read(await caller.call(completions_request("def ", suffix="return 1")))
    assert (server.asked[-1].path, server.asked[-1].body["suffix"]) == ("/v1/completions", "return 1")


@pytest.mark.parametrize("window", [None, 8192])
async def test_the_configured_window_replaces_the_servers_default_and_the_clients(
    window: int | None, server: Ollama, caller_of: CallerOf
) -> None:
    caller = caller_of(backend(server, window_tokens=window))
    await read(await caller.call(chat_request(temperature=0.5)))
    chosen = {} if window is None else {"num_ctx": window}
    assert server.asked[-1].body["options"] == {"temperature": 0.5, **chosen}
    await read(await caller.call(request_in("ollama_chat", options={"num_ctx": 99, "top_k": 5}, stream=False)))
    assert server.asked[-1].body["options"] == {"num_ctx": window or 99, "top_k": 5}
    await read(await caller.call(request_in("openai_embeddings", "one")))
    assert server.asked[-1].body["options"] == chosen


async def test_a_prompt_that_does_not_fit_is_refused_and_not_cut(server: Ollama, caller: Caller) -> None:
    server.window = 2000
    with pytest.raises(BackendRefused) as refused:
        await caller.call(chat_request("long " * 1000))
    assert refused.value.code == ContextTooLong.code


async def test_a_prompt_that_does_not_fit_goes_to_a_backend_with_a_larger_window(
    server: Ollama, small: Provider, caller_of: CallerOf
) -> None:
    server.window = 2000
    caller = caller_of(backend(server, window_tokens=512), backend_at(small, "small", window_tokens=100_000))
    assert b"You said" in await read(await caller.call(chat_request("long " * 1000)))
    assert caller.outcomes[-1] == ("small", "ok")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_an_old_server_has_cut_is_logged(
    stream: bool, server: Ollama, caller_of: CallerOf, caplog: pytest.LogCaptureFixture
) -> None:
    caller = caller_of(backend(server, window_tokens=512))
    for count in (511, 512):
        last = done(prompt_eval_count=count)
        server.script(Pieces((line(said("x")), line(last))) if stream else Body(last))
        await read(await caller.call(chat_request(stream=stream)))
        assert ("has cut a prompt to its context window of 512 tokens" in caplog.text) == (count == 512)


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_stream_in_any_pieces(size: int, server: Ollama, caller: Caller) -> None:
    whole = b"".join(line(each) for each in (said("grü"), said("ße 😀 \u2028"), said(thinking="hm"), done()))
    server.script(Pieces(tuple(whole[at : at + size] for at in range(0, len(whole), size))))
    answer = await caller.call(streaming())
    assert text(await read(answer)) == "grüße 😀 \u2028"
    assert answer.attempt.usage == Usage(14, output_tokens=4)


async def test_line_ends_of_another_kind_and_blank_lines(server: Ollama, caller: Caller) -> None:
    lines = [orjson.dumps(each) for each in (said("one "), said("two"), done())]
    server.script(Pieces((b"\n\r\n".join(lines),)))
    assert text(await read(await caller.call(streaming()))) == "one two"


HALF = (line(said("half")), line(said(" of"))[:30])


@pytest.mark.parametrize(
    "pieces",
    [
        Pieces(HALF),
        Pieces(HALF, cut=True),
        Pieces(HALF[:1]),
        Pieces((*HALF[:1], line({"error": "CUDA error: out of memory"}))),
        Pieces((*HALF[:1], b"<html>\n")),
        Pieces((*HALF[:1], b'{"message": {"content": "' + b"x" * 9 * 2**20)),
    ],
    ids=["half a line", "cut", "no end", "error", "junk", "huge"],
)
@pytest.mark.parametrize("client", ["openai_chat", "ollama_chat", "anthropic_messages"])
async def test_a_stream_that_ends_badly_is_broken_and_what_came_is_counted_once(
    client: str, pieces: Pieces, server: Ollama, caller: Caller
) -> None:
    server.script(pieces)
    answer = await caller.call(request_in(client, stream=True))
    got: list[bytes] = []
    with pytest.raises(StreamBroken):
        await answer.pipe_to(lambda piece: not got.append(piece))
    await answer.aclose()
    assert b"half" in b"".join(got)
    assert answer.ending == b""
    assert answer.attempt.usage is None, "it is estimated from what came"
    assert answer.attempt.chunks >= 1
    assert caller.settled()


@pytest.mark.parametrize(
    "pieces", [(), (b"\n",), (line({"error": "model failed to load"}),), (b"<html>no</html>\n",), HALF[1:]]
)
async def test_a_stream_that_fails_before_its_first_line_goes_to_the_next_backend(
    pieces: tuple[bytes, ...], server: Ollama, small: Provider, caller_of: CallerOf
) -> None:
    server.script(*[Pieces(pieces)] * 2)
    small.script(Reply(text="from the next"))
    caller = caller_of(backend(server), backend_at(small, "small"))
    assert text(await read(await caller.call(streaming()))) == "from the next"
    assert [name for name, outcome in caller.outcomes if outcome == "ok"] == ["small"]


async def test_a_client_that_hangs_up_stops_the_server_and_pays_for_what_came(server: Ollama, caller: Caller) -> None:
    server.script(Pieces(tuple(line(said(" and")) for _ in range(2000)), every_s=0.005))
    answer = await caller.call(streaming())
    async for _ in pieces_of(answer):
        if answer.attempt.chunks >= 3:
            break
    await answer.aclose()
    await until(lambda: server.hung_up == 1)
    assert answer.attempt.usage is None
    assert answer.attempt.chunks >= 3


async def test_calls_of_two_requests_have_different_ids(server: Ollama, caller: Caller) -> None:
    ids = set()
    for _ in range(2):
        calls = [{"function": {"name": "look", "arguments": {}}}] * 2
        server.script(Body({**done(), "message": {"role": "assistant", "content": "", "tool_calls": calls}}))
        message = orjson.loads(await read(await caller.call(chat_request())))["choices"][0]["message"]
        ids |= {each["id"] for each in message["tool_calls"]}
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (Refuse(400, {"error": "m does not support thinking"}), "m does not support thinking"),
        (Refuse(404, {"error": "model 'm' not found"}), "knows no such path or model"),
        (Refuse(500, {"error": "llama runner process has terminated"}), "failed"),
        (Refuse(503, {"error": "server busy, please try again"}), "overloaded"),
    ],
)
async def test_refusals(refusal: Refuse, expected: str, server: Ollama, caller: Caller) -> None:
    server.script(*[refusal] * 3)
    with pytest.raises(GatewayError, match=expected) as failed:
        await caller.call(chat_request())
    assert KEY not in str(failed.value)


async def test_several_requests_at_once_do_not_mix(server: Ollama, caller: Caller) -> None:
    async def one(number: int) -> str:
        return text(await read(await caller.call(streaming(user=str(number)))))

    assert set(await asyncio.gather(*(one(number) for number in range(20)))) == {"Hello from Ollama"}


async def test_the_server_is_tested_by_its_own_list_of_models(server: Ollama) -> None:
    assert not (await reach(backend(server))).doubt
    server.models = ("llama3.2:latest",)
    assert not (await reach(backend(server, model="llama3.2"))).doubt
    assert "does not have other" in (await reach(backend(server, model="other"))).doubt


async def test_an_address_with_v1_is_ollamas_openai_api_as_before(small: Provider, caller_of: CallerOf) -> None:
    old = Backend(name="o", kind="ollama", base_url=small.url, model="m", max_output_tokens=100)
    assert old.spoken == ("openai_chat", "openai_completions", "openai_embeddings")
    asked = chat_request(max_completion_tokens=500, seed=7)
    small.script(Reply(tokens=3))
    await read(await caller_of(old).call(asked))
    assert small.last.path == "/v1/chat/completions"
    assert small.last.json == {**asked.body, "model": "m", "max_completion_tokens": 100, "max_tokens": 100}


def test_an_entry_without_address_speaks_ollamas_own_api() -> None:
    local = Backend.model_validate({"name": "o", "kind": "ollama", "model": "m"})
    assert (local.base_url, local.hosted, local.spoken[0]) == ("http://127.0.0.1:11434", False, "ollama_chat")
    assert Backend.model_validate(
        {"name": "o", "kind": "ollama", "model": "m", "base_url": "https://ollama.com"}
    ).hosted
