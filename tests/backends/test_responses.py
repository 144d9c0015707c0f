"""Backends that speak Responses, natively and for chat clients, over real sockets."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest
from gateway.errors import BadRequest, GatewayError, StreamBroken
from tests.backends.conftest import KEY, CallerOf, backend_at
from tests.dialects.samples import events_of
from tests.dialects.sdk import accumulate
from tests.fakes.caller import Caller, read
from tests.fakes.provider import Fail, Provider, Reply
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request, responses_request

REPLY = Reply(text="añ b c", reasoning="hm hm", cached_tokens=1)
TRUTH = Usage(cached_tokens=1, output_tokens=3, reasoning_tokens=2)


@pytest.fixture
def caller(small: Provider, caller_of: CallerOf) -> Caller:
    """Of one backend that speaks Responses and nothing else."""
    return caller_of(backend_at(small, "small", dialects=("openai_responses",)))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_client_is_answered_by_a_backend_of_responses(
    small: Provider, caller: Caller, stream: bool
) -> None:
    small.script(REPLY)
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if stream else {}
    body = await read(await caller.call(chat_request(stream=stream, max_completion_tokens=50, **options)))
    said = accumulate(body) if stream else ChatCompletion.model_validate_json(body)
    message = said.choices[0].message
    assert (message.content, message.model_extra and message.model_extra["reasoning_content"]) == ("añ b c", "hm hm")
    assert said.usage
    assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (1, 5)
    assert caller.record.attempts[0].usage == TRUTH == small.last.usage
    assert small.last.path == "/v1/responses"
    assert small.last.header(b"authorization") == b"Bearer " + KEY.encode()
    assert small.last.json == {
        "model": "model-of-small",
        "input": [{"role": "user", "content": "hello"}],
        "store": False,
        "max_output_tokens": 50,
        **({"stream": True} if stream else {}),
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_is_called_and_its_result_taken(small: Provider, caller: Caller, stream: bool) -> None:
    small.script(Reply(tool="look_up"), Reply())
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
    body = await read(await caller.call(chat_request("where", stream=stream, tools=[tool])))
    said = accumulate(body) if stream else ChatCompletion.model_validate_json(body)
    assert said.choices[0].finish_reason == "tool_calls"
    (call,) = [one.model_dump(exclude_none=True) for one in said.choices[0].message.tool_calls or ()]
    assert call["function"]["arguments"] == '{"query": "where"}'
    result = {"role": "tool", "tool_call_id": call["id"], "content": "there"}
    messages = [{"role": "user", "content": "where"}, {"role": "assistant", "tool_calls": [call]}, result]
    await read(await caller.call(chat_request(stream=stream, messages=messages, tools=[tool])))
    _, called, returned = small.last.json["input"]
    assert (called["type"], called["arguments"]) == ("function_call", '{"query": "where"}')
    assert returned == {"type": "function_call_output", "call_id": called["call_id"], "output": "there"}


@pytest.mark.parametrize("stream", [False, True])
async def test_parallel_calls_arrive_apart(small: Provider, caller: Caller, stream: bool) -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": f'{{"a": {place}}}'}}
        for place, name in enumerate(("one", "two", "three"))
    ]
    small.script(Reply(message={"content": "I look.", "tool_calls": calls}))
    body = await read(await caller.call(chat_request(stream=stream)))
    message = (accumulate(body) if stream else ChatCompletion.model_validate_json(body)).choices[0].message
    assert message.content == "I look."
    got = [one.model_dump(include={"id", "type", "function"}) for one in message.tool_calls or ()]
    assert [{**one, "function": {"name": one["id"], "arguments": one["function"]["arguments"]}} for one in got] == calls


@pytest.mark.parametrize(
    "reply", [REPLY, Reply(tokens=9, crlf=True), Reply(text="é ñ", split=True), Reply(huge=300_000)]
)
async def test_a_stream_of_responses_is_relayed_byte_for_byte(small: Provider, caller: Caller, reply: Reply) -> None:
    small.script(reply, reply)
    native = await _raw(small, responses_request(stream=True, store=False))
    body = await read(await caller.call(responses_request(stream=True, store=False)))
    assert _unnumbered(body) == _unnumbered(native)
    assert caller.record.attempts[0].usage == small.last.usage
    assert caller.record.attempts[0].chunks >= small.last.chunks_sent


async def _raw(provider: Provider, request: CompletionRequest) -> bytes:
    """What the provider says when nobody is between."""
    import aiohttp

    body = {**request.body, "model": "model-of-small"}
    async with aiohttp.ClientSession() as session, session.post(provider.url + "/responses", json=body) as answer:
        return await answer.read()


def _unnumbered(stream: bytes) -> bytes:
    """The provider counts its answers."""
    for name in (b"resp", b"msg", b"rs"):
        stream = stream.replace(name + b"_2", name + b"_1")
    return stream


async def test_a_plain_response_is_passed_on_and_billed(small: Provider, caller: Caller) -> None:
    small.script(REPLY)
    body = await read(await caller.call(responses_request(instructions="Be brief.")))
    said = Response.model_validate_json(body)
    assert (said.output_text, said.instructions) == ("añ b c", "Be brief.")
    assert caller.record.attempts[0].usage == small.last.usage
    assert small.last.json["store"] is False


@pytest.mark.parametrize("request_of", [chat_request, responses_request])
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(tokens=5, error_event="broke", after=2), "broke"),
        (Reply(tokens=5, finish="failed"), "scripted failure"),
        (Reply(tokens=5, done=False), "before the answer was complete"),
        (Reply(tokens=5, cut="fin", after=2), "small broke"),
        (Reply(tokens=5, cut="rst", after=2, inside=True), "small broke"),
    ],
)
async def test_a_stream_that_breaks_has_no_end(
    small: Provider, caller: Caller, request_of: Any, reply: Reply, words: str
) -> None:
    small.script(reply)
    answer = await caller.call(request_of(stream=True))
    relayed = bytearray()

    def take(piece: bytes) -> bool:
        relayed.extend(piece)
        return True

    with pytest.raises(StreamBroken, match=words):
        await answer.pipe_to(take)
    await answer.aclose()
    assert answer.ending == b""
    assert not any(mark in relayed for mark in (b"[DONE]", b"response.completed", b'"finish_reason":"'))
    assert answer.delivered_text().startswith("t0 t1 ")


@pytest.mark.parametrize("request_of", [chat_request, responses_request])
async def test_hanging_up_ends_the_call_and_what_came_is_known(
    small: Provider, caller: Caller, request_of: Any
) -> None:
    small.script(Reply(tokens=9, cut="hang", after=3))
    answer = await caller.call(request_of(stream=True))
    received = b""
    async for piece in pieces_of(answer):
        received += piece
        if b"t2 " in received:
            break
    await answer.aclose()
    await small.settled()
    assert small.last.hung_up
    assert answer.delivered_text() == "t0 t1 t2 "


@pytest.mark.parametrize("request_of", [chat_request, responses_request])
async def test_a_limit_cuts_the_answer_and_says_so(small: Provider, caller: Caller, request_of: Any) -> None:
    small.script(*[Reply(tokens=50)] * 2)
    limit = "max_output_tokens" if request_of is responses_request else "max_tokens"
    for stream in (False, True):
        answer = await caller.call(request_of(stream=stream, **{limit: 3}))
        body = await read(answer)
        assert answer.finish == "length"
        assert (b'"length"' if request_of is chat_request else b'"incomplete"') in body


@pytest.mark.parametrize("request_of", [chat_request, responses_request])
async def test_a_refusal_of_the_request_is_passed_on(small: Provider, caller: Caller, request_of: Any) -> None:
    small.script(Fail(400, "Too long.", code="context_length_exceeded", param="input"))
    with pytest.raises(GatewayError, match="Too long") as caught:
        await caller.call(request_of(stream=True))
    assert (caught.value.code, caught.value.param) == (
        "context_length_exceeded",
        "messages" if request_of is chat_request else "input",
    )


async def test_a_backend_without_responses_is_asked_over_chat(caller_of: CallerOf) -> None:
    async with Provider(speaks=("/v1/chat/completions",)) as provider:
        caller = caller_of(backend_at(provider, "small"))
        body = await read(await caller.call(responses_request("hello")))
        assert Response.model_validate_json(body).output_text == "You said: hello"
        assert [exchange.path for exchange in provider.exchanges] == ["/v1/responses", "/v1/chat/completions"]
        stream = await read(await caller.call(responses_request("hello", stream=True)))
        assert events_of(stream)[-1]["response"]["output"][0]["content"][0]["text"] == "You said: hello"
        assert provider.last.path == "/v1/chat/completions"
        assert len(provider.exchanges) == 3


async def test_what_cannot_be_said_over_chat_is_what_the_client_hears(caller_of: CallerOf) -> None:
    """Not that the backend has no endpoint for Responses."""
    async with Provider(speaks=("/v1/chat/completions",)) as provider:
        caller = caller_of(backend_at(provider, "small"))
        with pytest.raises(BadRequest) as caught:
            await caller.call(responses_request("hello", tools=[{"type": "file_search"}]))
        assert caught.value.param == "tools[0].type"
        assert [exchange.path for exchange in provider.exchanges] == ["/v1/responses"]


@pytest.mark.parametrize(
    ("missing", "paths"),
    [
        (Fail(404, body="html"), ["/v1/responses", "/v1/chat/completions"]),
        (Fail(405, "no such method"), ["/v1/responses", "/v1/chat/completions"]),
        (Fail(404, "no such model", code="model_not_found", param="model"), ["/v1/responses"]),
        (Fail(404, "no such item", param="input"), ["/v1/responses"]),
    ],
)
async def test_only_a_missing_endpoint_means_that_the_dialect_is_not_spoken(
    small: Provider, caller_of: CallerOf, missing: Fail, paths: list[str]
) -> None:
    caller = caller_of(backend_at(small, "small"))
    small.script(missing)
    with suppress(GatewayError):
        await caller.call(responses_request("hello"))
    assert [exchange.path for exchange in small.exchanges] == paths


async def test_a_model_that_is_served_over_responses_alone_is_asked_there(small: Provider, caller_of: CallerOf) -> None:
    caller = caller_of(backend_at(small, "small"))
    words = "This model is only supported in v1/responses and not in v1/chat/completions."
    small.script(Fail(404, words, param="model"))
    for _ in range(2):
        body = await read(await caller.call(chat_request("hello")))
        assert ChatCompletion.model_validate_json(body).choices[0].message.content == "You said: hello"
    assert [exchange.path for exchange in small.exchanges] == ["/v1/chat/completions", "/v1/responses", "/v1/responses"]
