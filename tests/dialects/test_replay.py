"""Stored answers, served again."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.openai_chat.replay import chunks
from gateway.dialects.replay import Replayed
from gateway.dialects.streams import sse
from gateway.domain.answer import Answer
from tests.dialects.samples import DONE, events_of, golden, read, steady, streaming
from tests.dialects.sdk import accumulate
from tests.support.pieces import pieces_of
from tests.support.requests import chat_request

wire = ChatToChat()
USAGE = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21, "prompt_tokens_details": {"cached_tokens": 4}}
CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "San Sebastián"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "time", "arguments": "{}"}},
]
CITATION = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 2, "title": "T", "url": "https://example.com"},
}
LOGPROBS = {"content": [{"token": "Hi", "bytes": [72], "logprob": -0.1, "top_logprobs": []}], "refusal": None}


def stored(*choices: dict[str, Any], **top: Any) -> bytes:
    shared = {"id": "chatcmpl-1", "object": "chat.completion", "created": 5, "model": "m", "system_fingerprint": "fp"}
    return orjson.dumps({**shared, "choices": choices, "usage": USAGE, **top})


def choice(index: int = 0, finish: str = "stop", logprobs: Any = None, **message: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": "Hi there.\n", "refusal": None, **message}
    return {"index": index, "message": whole, "logprobs": logprobs, "finish_reason": finish}


LONG = " ".join(f"palabra{n}" for n in range(100)) + "\n\n  ¿sí? 🌈"
STORED = {
    "text": stored(choice()),
    "long text": stored(choice(content=LONG)),
    "tools": stored(choice(finish="tool_calls", content=None, tool_calls=CALLS)),
    "text and tools": stored(choice(finish="tool_calls", tool_calls=CALLS)),
    "reasoning": stored(choice(reasoning_content="Let me see.")),
    "refusal": stored(choice(content=None, refusal="I will not do that.")),
    "log-probabilities": stored(choice(logprobs=LOGPROBS)),
    "log-probabilities of a call": stored(
        choice(finish="tool_calls", content=None, logprobs=LOGPROBS, tool_calls=CALLS)
    ),
    "two": stored(choice(0), choice(1, "length", content="Or so")),
    "empty": stored(choice(content="")),
    "unknown fields": stored(
        choice(annotations=[CITATION], mood="sunny") | {"stop_reason": None, "content_filter_results": {"a": 1}},
        service_tier="default",
        provider={"name": "x"},
    ),
    "real": golden("llamacpp_chat.json"),
}


async def replay(request: Any, completion: bytes) -> tuple[Replayed, list[bytes]]:
    answer = Replayed(request, completion)
    return answer, [event async for piece in pieces_of(answer) for event in sse.events(piece)]


async def test_a_plain_answer_is_the_stored_body_to_the_byte() -> None:
    answer: Answer = Replayed(chat_request(), STORED["text"])
    assert [piece async for piece in pieces_of(answer)] == []
    assert answer.ending is STORED["text"]
    assert (answer.status, answer.content_type, answer.complete) == (200, "application/json", True)
    assert (answer.stream, answer.finish, answer.attempt) == (False, "stop", None)
    assert answer.completion() is STORED["text"]
    assert answer.delivered_text() == "Hi there.\n"
    await answer.aclose()


@pytest.mark.parametrize("name", STORED)
async def test_a_stream_says_what_was_stored(name: str) -> None:
    answer, pieces = await replay(streaming(wants_usage=True), STORED[name])
    assert (answer.content_type, answer.ending) == ("text/event-stream; charset=utf-8", DONE)
    for said in events_of(b"".join(pieces)):
        ChatCompletionChunk.model_validate(said)
    reader = wire.reader(streaming(wants_usage=True))
    assert read(reader, [b"".join(pieces) + DONE]) == b"".join(pieces)
    assert reader.finish == answer.finish
    assert reader.delivered_text() == answer.delivered_text()
    again, original = orjson.loads(reader.completion() or b"{}"), orjson.loads(STORED[name])
    assert without_nulls(again) == without_nulls(original)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", STORED)
async def test_the_official_client_accumulates_the_stored_answer(name: str) -> None:
    _, pieces = await replay(streaming(wants_usage=True), STORED[name])
    seen = accumulate(b"".join(pieces) + DONE, stream_options={"include_usage": True})
    kept = ChatCompletion.model_validate_json(STORED[name])
    assert (seen.id, seen.created, seen.model) == (kept.id, kept.created, kept.model)
    assert seen.usage == kept.usage
    for one, other in zip(seen.choices, kept.choices, strict=True):
        assert one.finish_reason == other.finish_reason
        assert (one.message.content or "") == (other.message.content or "")
        assert one.message.refusal == other.message.refusal
        assert functions(one.message.tool_calls) == functions(other.message.tool_calls)
        assert (one.logprobs and one.logprobs.content) == (other.logprobs and other.logprobs.content)


def functions(calls: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in calls or ()]


async def test_usage_comes_exactly_as_stored_and_only_to_who_asked() -> None:
    _, asked = await replay(streaming(wants_usage=True), STORED["text"])
    _, unasked = await replay(streaming(), STORED["text"])
    assert asked[:-1] == unasked
    assert events_of(asked[-1])[0]["usage"] == USAGE
    assert events_of(asked[-1])[0]["choices"] == []
    _, unknown = await replay(streaming(wants_usage=True), orjson.dumps({"choices": [choice()], "id": "x"}))
    assert all("usage" not in said for said in events_of(b"".join(unknown)))


async def test_text_comes_in_pieces_of_some_words() -> None:
    _, pieces = await replay(streaming(), STORED["long text"])
    contents = [said["choices"][0]["delta"].get("content") for said in events_of(b"".join(pieces))]
    words = [content for content in contents if content]
    assert "".join(words) == LONG
    assert len(words) == 7
    assert all(word.startswith("palabra") for word in words)


@steady
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_character_is_lost_between_the_pieces(content: str) -> None:
    body = orjson.loads(stored(choice(content=content)))
    said = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks(body, wants_usage=False)]
    assert "".join(said) == content


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_is_passed_on_in_one_piece_and_once(streamed: bool) -> None:
    request, completion = (streaming() if streamed else chat_request()), stored(choice())
    pieces: list[bytes] = []

    def take(piece: bytes) -> bool:
        pieces.append(piece)
        return False

    answer = Replayed(request, completion)
    assert await answer.pipe_to(take) is streamed
    assert await answer.pipe_to(take) is False
    assert len(pieces) == streamed
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events_of(b"".join(pieces)))
    assert text == (orjson.loads(completion)["choices"][0]["message"]["content"] if streamed else "")
