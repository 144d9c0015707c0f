"""OpenAI chat over a provider that speaks Anthropic on a real socket: streams, whole answers, and broken ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.backends.providers.base import PATHS
from gateway.domain.money.usage import Usage
from gateway.errors import BackendError, StreamBroken
from tests.dialects.over_anthropic import checked, wire
from tests.dialects.samples import events_of, streaming
from tests.dialects.sdk import accumulate
from tests.fakes.provider import Fail, Provider, Raw, Reply
from tests.support.requests import chat_request

THOUGHT = {"type": "thinking", "thinking": 'Let me "see":\n both cities.', "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "eHg="}
BEFORE: dict[str, Any] = {"type": "text", "text": "I look at   Bilbao — ✓ first.\n"}
BETWEEN: dict[str, Any] = {
    "type": "text",
    "text": "And at the other.",
    "citations": [{"type": "char_location", "cited_text": "x"}],
}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "weather"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}


def use(call_id: str, name: str, given: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


FIRST = use("toolu_1", "weather", '{"city": "Bilbao \\u2713", "days": 123456789012345678901234567890}')
SECOND = use("toolu_2", "time", "{}")
THIRD = use("toolu_3", "weather", '{"city":"San \\"S\\" é","at":[1.50,1e3]}')
ANSWERS = {
    "text": Reply(text="one two ✓ three\n four", cached_tokens=1),
    "everything": Reply(
        blocks=(THOUGHT, REDACTED, SEARCH, FOUND, BEFORE, FIRST, BETWEEN, SECOND, THIRD), cache_write_1h_tokens=1
    ),
    "calls alone": Reply(blocks=(FIRST, SECOND, THIRD)),
    "stopped": Reply(text="one two", stop_sequence="END"),
    "cut short": Reply(text="one", finish="length"),
    "thoughts": Reply(text="one", reasoning="let me see"),
}


NEVER_DONE = Reply(tokens=5, done=False)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


class Exchange:
    """What came of one request."""

    def __init__(self, stream: bool) -> None:
        self.request = streaming(wants_usage=True) if stream else chat_request()
        self.reader = wire.reader(self.request)
        self.relayed = b""


async def exchange(provider: Provider, *, stream: bool = True, exchanged: Exchange | None = None) -> Exchange:
    """One request on a connection of its own, read as the gateway reads. Raises what the reader raises."""
    exchanged = exchanged or Exchange(stream)
    headers = {name.decode(): value.decode() for name, value in wire.headers(exchanged.request)} | {
        "x-api-key": "sk-ant"
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            provider.url + PATHS[wire.backend], data=wire.body(exchanged.request, "claude", None), headers=headers
        ) as reply,
    ):
        if not stream:
            exchanged.relayed = wire.plain(exchanged.request, await reply.read()).body
            return exchanged
        try:
            async for piece in reply.content.iter_any():
                exchanged.relayed += exchanged.reader.feed(piece)
        except aiohttp.ClientError:
            pass  # the connection broke
        exchanged.reader.eof()
        return exchanged


def without_numbers(completion: ChatCompletion) -> dict[str, Any]:
    """What was said, without what is of one answer only and the numbers that only streams have."""
    said = completion.model_dump(exclude={"id", "created", "service_tier", "system_fingerprint", "moderation"})
    message = said["choices"][0]["message"]
    for item in (*(message.get("tool_calls") or ()), *(message.get("thinking_blocks") or ())):
        item.pop("index", None)
    for call in message.get("tool_calls") or ():
        call["function"].pop("parsed_arguments", None)
    message.pop("parsed", None)
    said["choices"][0].pop("stop_reason", None)  # the SDK puts nothing but OpenAI's own together
    return said


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("oddly", [{}, {"padded": True}, {"crlf": True, "padded": True}, {"split": True}])
async def test_a_stream_is_put_together_as_the_whole_answer_would_have_been(
    provider: Provider, name: str, oddly: dict[str, Any]
) -> None:
    reply = ANSWERS[name]
    provider.script(reply, Reply(**{**vars(reply), **oddly}))
    whole = checked(ChatCompletion.model_validate_json((await exchange(provider, stream=False)).relayed, strict=True))
    exchanged = await exchange(provider)
    for one in events_of(exchanged.relayed):
        checked(ChatCompletionChunk.model_validate(one, strict=True))
    seen = accumulate(exchanged.relayed + exchanged.reader.ending)
    assert without_numbers(seen) == without_numbers(whole)
    assert whole.usage
    kept = ChatCompletion.model_validate_json(exchanged.reader.completion() or b"")
    assert without_numbers(kept) == without_numbers(whole)
    assert exchanged.reader.usage == provider.last.usage
    assert exchanged.reader.finish == whole.choices[0].finish_reason
    assert kept.choices[0].model_extra == whole.choices[0].model_extra


async def test_calls_keep_their_bytes_order_and_ids(provider: Provider) -> None:
    provider.script(ANSWERS["everything"])
    exchanged = await exchange(provider)
    message = accumulate(exchanged.relayed + exchanged.reader.ending).choices[0].message
    calls = message.tool_calls or []
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [  # type: ignore[union-attr]
        (block["id"], block["name"], block["input"]) for block in (FIRST, SECOND, THIRD)
    ]
    assert message.content == BEFORE["text"] + BETWEEN["text"]
    assert message.model_extra
    assert message.model_extra["thinking_blocks"] == [THOUGHT, {**REDACTED, "index": 1}]


async def test_what_was_thought_and_cached_is_counted(provider: Provider) -> None:
    provider.script(Reply(text="one", reasoning="let me see", cache_write_1h_tokens=1))
    exchanged = await exchange(provider)
    assert exchanged.reader.usage == Usage(cache_write_1h_tokens=1, output_tokens=1, reasoning_tokens=3)
    assert events_of(exchanged.relayed)[-1]["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": 4,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


@pytest.mark.parametrize(
    "broken",
    [
        Reply(tokens=5, cut="fin", after=2),
        Reply(tokens=5, cut="rst", after=2),
        Reply(tokens=5, cut="fin", after=2, inside=True),
        Reply(tokens=5, cut="fin", after=5, framing="eof"),
        Reply(tokens=5, error_event="Overloaded", after=2),
        Reply(blocks=(THOUGHT, FIRST), cut="fin", after=8),
        NEVER_DONE,
        Fail(status=200, body="garbage"),
        Fail(status=200, body="truncated"),
        Fail(status=200),
        Raw((b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", b"data: {}\n\n"), then="fin"),
    ],
)
async def test_a_broken_stream_has_no_end(provider: Provider, broken: Any) -> None:
    provider.script(broken)
    exchanged = Exchange(stream=True)
    with pytest.raises(BackendError):
        await exchange(provider, exchanged=exchanged)
    assert b"[DONE]" not in exchanged.relayed + exchanged.reader.ending
    assert exchanged.reader.completion() is None
    ends = [one for one in events_of(exchanged.relayed) if one["choices"][0]["finish_reason"]]
    assert len(ends) == (broken == NEVER_DONE)  # what the provider said itself


async def test_an_error_event_says_why(provider: Provider) -> None:
    provider.script(Reply(tokens=5, error_event="Overloaded", after=2))
    with pytest.raises(StreamBroken, match="Overloaded"):
        await exchange(provider)
