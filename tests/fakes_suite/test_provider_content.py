"""Answers of many parts, as the vendors' own SDKs read them off the scripted provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.fakes.provider import Provider, Reply

ASK: Any = [{"role": "user", "content": "hi"}]
BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "eHg="},
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
    {
        "type": "text",
        "text": "I look — ✓. ",
        "citations": [
            {
                "type": "char_location",
                "cited_text": "x",
                "document_index": 0,
                "document_title": None,
                "start_char_index": 0,
                "end_char_index": 1,
            }
        ],
    },
    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bilbao"}},
    {"type": "text", "text": "And then"},
    {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}},
)
CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bilbao"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "time", "arguments": '{"zone": "Europe/Madrid"}'}},
]


@pytest.fixture
async def anthropic(provider: Provider) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(api_key="k", base_url=provider.url.removesuffix("/v1"), max_retries=0) as client:
        yield client


@pytest.fixture
async def openai(provider: Provider) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="k", base_url=provider.url, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("padded", [False, True])
async def test_anthropics_blocks_streamed_and_whole(
    provider: Provider, anthropic: AsyncAnthropic, padded: bool
) -> None:
    provider.script(*[Reply(blocks=BLOCKS, padded=padded)] * 2)
    whole = await anthropic.messages.create(model="m", max_tokens=99, messages=ASK)
    async with anthropic.messages.stream(model="m", max_tokens=99, messages=ASK) as events:
        streamed = await events.get_final_message()
    for message in (whole, streamed):
        said = [block.model_dump(mode="json", exclude_unset=True) for block in message.content]
        assert [{**BLOCKS[place], **block} for place, block in enumerate(said)] == list(BLOCKS)
        assert message.stop_reason == "tool_use"


async def test_arguments_are_written_as_given_and_a_stop_sequence_is_named(
    provider: Provider, anthropic: AsyncAnthropic
) -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": '{"n": 1.50}'}
    provider.script(Reply(blocks=(call,)), Reply(text="one", stop_sequence="END"))
    raw = await anthropic.messages.with_raw_response.create(model="m", max_tokens=9, messages=ASK)
    assert b'"input":{"n": 1.50}' in raw.http_response.content
    stopped = await anthropic.messages.create(model="m", max_tokens=9, messages=ASK)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "END")


async def test_calls_of_one_message_come_interleaved(provider: Provider, openai: AsyncOpenAI) -> None:
    message = {"content": "I look. ", "reasoning_content": "Let me see.", "tool_calls": CALLS}
    provider.script(*[Reply(message=message)] * 2)
    whole = (await openai.chat.completions.create(model="m", messages=ASK)).choices[0]
    async with openai.chat.completions.stream(model="m", messages=ASK) as events:
        streamed = (await events.get_final_completion()).choices[0]
    for said in (whole, streamed):
        assert (said.finish_reason, said.message.content) == ("tool_calls", "I look. ")
        assert said.message.model_extra
        assert said.message.model_extra["reasoning_content"] == "Let me see."
        calls = [call.model_dump(exclude={"index"}) for call in said.message.tool_calls or ()]
        assert [{**call, "function": {**call["function"], "parsed_arguments": None}} for call in calls] == [
            {**call, "function": {**call["function"], "parsed_arguments": None}}  # type: ignore[dict-item]
            for call in CALLS
        ]
    order = [
        call["index"]
        for line in (await raw(provider, message)).splitlines()
        if line.startswith(b"data: {")
        for choice in orjson.loads(line[6:])["choices"]
        for call in choice["delta"].get("tool_calls") or ()
    ]
    assert order[:6] == [0, 1, 0, 1, 0, 1]


async def raw(provider: Provider, message: dict[str, Any]) -> bytes:
    provider.script(Reply(message=message))
    async with AsyncOpenAI(api_key="k", base_url=provider.url, max_retries=0) as client:
        response = await client.chat.completions.with_raw_response.create(model="m", messages=ASK, stream=True)
        return b"".join([piece async for piece in response.http_response.aiter_bytes()])


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "refusal": "I will not."},
        {
            "content": None,
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}],
        },
    ],
)
async def test_refusals_custom_tools_and_several_choices(
    provider: Provider, openai: AsyncOpenAI, message: dict[str, Any]
) -> None:
    provider.script(Reply(message=message))
    answer = await openai.chat.completions.create(model="m", messages=ASK, n=2)
    for choice in answer.choices:
        assert message.items() <= choice.message.model_dump(exclude_none=False, exclude_unset=True).items()
    text = b"".join(
        part.encode()
        for line in (await raw(provider, message)).splitlines()
        if line.startswith(b"data: {")
        for choice in orjson.loads(line[6:])["choices"]
        for call in (choice["delta"].get("tool_calls") or [{"custom": {"input": choice["delta"].get("refusal") or ""}}])
        if (part := call["custom"]["input"])
    )
    assert text in (b"I will not.", b"*** Begin")
