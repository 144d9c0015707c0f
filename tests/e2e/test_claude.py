"""OpenAI's SDK in front of a backend that speaks Anthropic: whole tool loops, and what goes wrong on the way."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.e2e.conftest import Providers, client
from tests.e2e.gateway_process import GatewayProcess
from tests.fakes.provider import Fail, Reply

ASK: Any = {"role": "user", "content": "What is the weather in both cities?"}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "strict": True,  # or the SDK's streaming helper does not take it
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "number"}}},
        },
    }
]
CITIES = ("Bilbao", "Donostia")
THOUGHT = {"type": "thinking", "thinking": "Both, then.", "signature": "c2lnbmVk"}
CALLS = tuple(
    {"type": "tool_use", "id": f"toolu_{number}", "name": "weather", "input": f'{{"city": "{city}", "n": 1.50}}'}
    for number, city in enumerate(CITIES)
)
LOOP = Reply(blocks=(THOUGHT, {"type": "text", "text": "I look."}, *CALLS), padded=True)

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]  # processes start, on a machine that is busy


@pytest.mark.parametrize("stream", [False, True])
async def test_a_loop_of_parallel_calls(gateway: GatewayProcess, providers: Providers, stream: bool) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    providers.claude.script(LOOP, Reply(text="Sunny in both."))
    given: dict[str, Any] = {"model": "claude", "messages": [ASK], "tools": TOOLS}
    if stream:
        async with sdk.chat.completions.stream(**given) as events:
            kinds = {event.type async for event in events}
            said: Any = (await events.get_final_completion()).choices[0]
        assert {"content.delta", "tool_calls.function.arguments.done"} <= kinds
    else:
        said = (await sdk.chat.completions.create(**given)).choices[0]
    assert said.finish_reason == "tool_calls"
    assert [call.function.arguments for call in said.message.tool_calls] == [call["input"] for call in CALLS]
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in reversed(said.message.tool_calls)
    ]
    history = [ASK, said.message.model_dump(exclude_none=True), *results]
    done = await sdk.chat.completions.create(model="claude", messages=history, tools=TOOLS)
    assert done.choices[0].message.content == "Sunny in both."
    asked, answered = providers.claude.last.json["messages"][1:]
    assert asked["content"] == [
        THOUGHT,
        {"type": "text", "text": "I look."},
        *(
            {**call, "input": {"city": city, "n": 1.5}}
            for call, city in zip(CALLS, ("Bilbao", "Donostia"), strict=True)
        ),
    ]
    assert b'{"city": "Bilbao", "n": 1.50}' in providers.claude.last.body
    assert [block["tool_use_id"] for block in answered["content"]] == ["toolu_1", "toolu_0"]


async def test_an_overloaded_provider_is_asked_again(gateway: GatewayProcess, providers: Providers) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    providers.claude.script(Fail(529, message="Overloaded"), Reply(text="Now."))
    answer = await sdk.chat.completions.create(model="claude", messages=[ASK])
    assert answer.choices[0].message.content == "Now."


async def test_a_prompt_that_is_too_long_is_said_in_openais_words(
    gateway: GatewayProcess, providers: Providers
) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    providers.claude.script(Fail(400, message="prompt is too long: 300000 tokens > 200000 maximum"))
    with pytest.raises(openai.BadRequestError, match="prompt is too long") as caught:
        await sdk.chat.completions.create(model="claude", messages=[ASK])
    assert (caught.value.code, caught.value.type) == ("context_length_exceeded", "invalid_request_error")


async def test_an_error_in_the_middle_of_a_stream_reaches_the_client(
    gateway: GatewayProcess, providers: Providers
) -> None:
    sdk = client(gateway, await gateway.key("plain"))
    providers.claude.script(Reply(tokens=5, error_event="Overloaded", after=2))
    stream = await sdk.chat.completions.create(model="claude", messages=[ASK], stream=True)
    chunks: list[Any] = []
    with pytest.raises(openai.APIError, match="Overloaded"):
        await collect(stream, chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "t0 t1 "
    assert not any(chunk.choices[0].finish_reason for chunk in chunks)


async def collect(stream: Any, chunks: list[Any]) -> None:
    """What came before a failure is kept."""
    async for chunk in stream:
        chunks += [chunk]
