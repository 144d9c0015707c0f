"""The scripted provider's Responses are what OpenAI's own client expects, event by event."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from gateway.domain.money.usage import Usage
from tests.fakes.provider import Fail, Provider, Reply

MESSAGE = ["response.output_item.added", "response.content_part.added"]
MESSAGE_END = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]


async def streamed(client: openai.AsyncOpenAI, **fields: Any) -> tuple[list[ResponseStreamEvent], Response]:
    """Every event, and what the client's own helper made of them."""
    async with client.responses.stream(model="m", input="two words", **fields) as stream:
        events: list[Any] = [event async for event in stream]
        return events, await stream.get_final_response()


async def test_a_plain_response_repeats_its_request_and_counts(provider: Provider, client: openai.AsyncOpenAI) -> None:
    said = await client.responses.create(model="m", input="two words", instructions="Be brief.", metadata={"a": "b"})
    assert said.output_text == "You said: two words"
    assert (said.status, said.instructions, said.metadata) == ("completed", "Be brief.", {"a": "b"})
    assert said.usage
    assert (said.usage.input_tokens, said.usage.output_tokens) == (4, 4)
    assert provider.last.usage == Usage(input_tokens=4, output_tokens=4)
    assert provider.last.whole


async def test_a_stream_has_its_events_numbered_and_in_order(provider: Provider, client: openai.AsyncOpenAI) -> None:
    provider.script(Reply(text="a b", reasoning="hm hm", cached_tokens=1))
    events, final = await streamed(client)
    assert [event.type for event in events] == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.reasoning_summary_part.added"),
        *["response.reasoning_summary_text.delta"] * 2,
        *("response.reasoning_summary_text.done", "response.reasoning_summary_part.done"),
        "response.output_item.done",
        *MESSAGE,
        *["response.output_text.delta"] * 2,
        *MESSAGE_END,
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output_text == "a b"
    assert final.usage
    assert final.usage.input_tokens_details.cached_tokens == 1
    assert final.usage.output_tokens_details.reasoning_tokens == 2
    assert (provider.last.chunks_sent, provider.last.text_sent) == (4, "a b")


async def test_a_function_is_called_in_pieces_that_make_the_whole(
    provider: Provider, client: openai.AsyncOpenAI
) -> None:
    provider.script(*[Reply(tool="look_up")] * 2)
    plain = await client.responses.create(model="m", input=[{"role": "user", "content": "two words"}])
    events, final = await streamed(client)
    pieces = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    for said in (plain, final):
        (call,) = said.output
        assert call.type == "function_call"
        assert (call.name, call.arguments) == ("look_up", '{"query": "two words"}')
    assert pieces == '{"query": "two words"}'


async def test_a_given_message_is_shown_with_all_its_calls(provider: Provider, client: openai.AsyncOpenAI) -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": f'{{"a": {place}}}'}}
        for place, name in enumerate(("one", "two"))
    ]
    provider.script(Reply(message={"content": "I look.", "reasoning_content": "hm", "tool_calls": calls}))
    _, final = await streamed(client)
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert final.output_text == "I look."
    arguments = [item.arguments for item in final.output if item.type == "function_call"]
    assert arguments == ['{"a": 0}', '{"a": 1}']


async def test_an_answer_that_is_cut_by_the_limit_is_incomplete(provider: Provider, client: openai.AsyncOpenAI) -> None:
    provider.script(*[Reply(tokens=50)] * 2, Reply(finish="content_filter"), Reply(finish="failed"))
    said = await client.responses.create(model="m", input="x", max_output_tokens=3)
    assert (said.status, said.output_text) == ("incomplete", "t0 t1 t2 ")
    assert said.incomplete_details
    assert said.incomplete_details.reason == "max_output_tokens"
    stream = await client.responses.create(model="m", input="x", max_output_tokens=3, stream=True)
    assert [event.type async for event in stream][-1] == "response.incomplete"
    filtered = await client.responses.create(model="m", input="x")
    assert filtered.incomplete_details
    assert filtered.incomplete_details.reason == "content_filter"
    failed = await client.responses.create(model="m", input="x")
    assert (failed.status, failed.error and failed.error.code) == ("failed", "server_error")


async def test_what_is_included_only_when_asked(provider: Provider, client: openai.AsyncOpenAI) -> None:
    provider.script(*[Reply(text="a b", reasoning="hm", logprob=-0.5)] * 2)
    include: Any = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    thought, message = (await client.responses.create(model="m", input="x", include=include)).output
    assert thought.type == "reasoning"
    assert thought.encrypted_content
    assert message.type == "message"
    assert message.content[0].type == "output_text"
    assert [row.logprob for row in message.content[0].logprobs or ()] == [-0.5, -0.5]
    thought, message = (await client.responses.create(model="m", input="x")).output
    assert thought.type == "reasoning"
    assert not thought.encrypted_content


async def test_odd_streams_end_as_scripted(provider: Provider, client: openai.AsyncOpenAI) -> None:
    provider.script(
        *(Reply(error_event="broke", after=1), Reply(done=False), Reply(cut="fin", after=2), Fail(429)),
        *(Reply(text="ñ b", split=True), Reply(text="a", huge=300_000)),
    )
    stream = await client.responses.create(model="m", input="x", stream=True)
    last = [event async for event in stream][-1]
    assert last.type == "error"
    assert last.message == "broke"
    stream = await client.responses.create(model="m", input="x", stream=True)
    assert [event.type async for event in stream][-1] == "response.output_item.done"
    with pytest.raises(httpx.RemoteProtocolError):
        await streamed(client)
    with pytest.raises(openai.RateLimitError):
        await streamed(client)
    assert (await streamed(client))[1].output_text == "ñ b"
    assert len((await streamed(client))[1].output_text) == 300_001


@pytest.mark.parametrize("claim", ["absent", "zero", "wrong", "negative", "nonsense"])
async def test_a_lie_about_usage_leaves_the_truth_on_the_exchange(provider: Provider, claim: Any) -> None:
    provider.script(Reply(usage=claim))
    async with httpx.AsyncClient() as http:
        answer = (await http.post(provider.url + "/responses", json={"model": "m", "input": "two words"})).json()
    assert (answer["usage"] or {}).get("output_tokens") != 4
    assert provider.last.usage == Usage(input_tokens=2, output_tokens=4)
