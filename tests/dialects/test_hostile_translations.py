"""Whatever arrives on the way between two dialects, only the documented errors come out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from gateway.dialects.registry import wire
from gateway.domain.request import DialectName
from gateway.errors import BackendError, BadRequest
from tests.dialects.samples import STOP, chunk, event, steady, text
from tests.dialects.test_hostile import VALUES
from tests.support.requests import request_in

CLIENTS: tuple[DialectName, ...] = (
    *("openai_chat", "openai_completions", "openai_responses"),
    *("anthropic_messages", "gemini_generate", "bedrock_converse", "ollama_chat"),
)
WAYS: list[tuple[DialectName, DialectName]] = [
    *[(client, "openai_chat") for client in CLIENTS if client != "openai_chat"],
    *[(client, "openai_responses") for client in CLIENTS if client != "openai_responses"],
    *[(client, "anthropic_messages") for client in CLIENTS if client != "anthropic_messages"],
    *[(client, "bedrock_converse") for client in CLIENTS],
    *[(client, "gemini_generate") for client in CLIENTS],
    *[(client, "ollama_chat") for client in CLIENTS],
]
BEHIND = {client: [way for way in WAYS if way[0] == client] for client in CLIENTS}
"""The ways of each client's dialect. A drawn value goes all of them: to draw one costs ten times what a way does."""
twice = settings(steady, max_examples=2 * steady.max_examples)
FIELDS = ["messages", "input", "instructions", "stream_options", "tools", "tool_choice", "functions", "function_call"]
FIELDS += ["stop", "response_format", "reasoning_effort", "reasoning", "n", "temperature", "max_tokens", "logprobs"]
FIELDS += ["text", "include", "top_logprobs", "max_output_tokens", "web_search_options", "modalities", "verbosity"]
FIELDS += ["system", "stop_sequences", "thinking", "output_config", "metadata", "user", "best_of", "suffix", "echo"]
FIELDS += ["prompt_cache_key", "service_tier", "parallel_tool_calls", "max_completion_tokens", "logit_bias", "invented"]
FIELDS += ["contents", "generationConfig", "systemInstruction", "toolConfig", "safetySettings", "cached_content"]
FIELDS += [
    "inferenceConfig",
    "toolConfig",
    "outputConfig",
    "additionalModelRequestFields",
    "options",
    "format",
    "think",
]


@pytest.mark.parametrize("client", CLIENTS)
@twice
@given(fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3))
def test_a_request_is_either_refused_as_bad_or_can_be_sent(client: DialectName, fields: dict[str, Any]) -> None:
    for way in BEHIND[client]:
        note(" over ".join(way))
        with suppress(BadRequest):
            body = wire(*way).body(request_in(client, **fields), "other", None, max_output_tokens=5)
            assert isinstance(orjson.loads(body), dict)


@steady
@given(value=VALUES, name=st.sampled_from(["text", "inlineData", "functionCall", "functionResponse", "thought"]))
def test_geminis_parts_are_either_refused_as_bad_or_can_be_sent(value: Any, name: str) -> None:
    contents = [{"role": role, "parts": [{name: value}, value]} for role in ("user", "model")]
    fields = {"contents": contents, "tools": [{"functionDeclarations": [{"name": "f", "parameters": value}]}]}
    with suppress(BadRequest):
        wire("gemini_generate", "anthropic_messages").body(request_in("gemini_generate", **fields), "other", None)


@steady
@given(value=VALUES, name=st.sampled_from(["text", "image", "document", "toolUse", "toolResult", "reasoningContent"]))
def test_converses_blocks_are_either_refused_as_bad_or_can_be_sent(value: Any, name: str) -> None:
    messages = [{"role": role, "content": [{name: value}, value]} for role in ("user", "assistant")]
    spec = {"toolSpec": {"name": "f", "inputSchema": {"json": value}}}
    fields = {"messages": messages, "system": [value], "toolConfig": {"tools": [spec, value], "toolChoice": value}}
    for some in ({"messages": messages}, fields):
        with suppress(BadRequest):
            wire("bedrock_converse", "openai_chat").body(request_in("bedrock_converse", **some), "other", None)


@steady
@given(value=VALUES, name=st.sampled_from(["content", "images", "tool_calls", "thinking", "tool_name"]))
def test_ollamas_messages_are_either_refused_as_bad_or_can_be_sent(value: Any, name: str) -> None:
    messages = [{"role": role, name: value} for role in ("user", "assistant", "tool")]
    with suppress(BadRequest):
        wire("ollama_chat", "anthropic_messages").body(request_in("ollama_chat", messages=messages), "other", None)


@pytest.mark.parametrize("client", CLIENTS)
@twice
@given(body=st.binary(max_size=20) | VALUES.map(orjson.dumps))
def test_a_plain_answer_is_read_or_garbage(client: DialectName, body: bytes) -> None:
    for way in BEHIND[client]:
        note(" over ".join(way))
        with suppress(BackendError):
            wire(*way).plain(request_in(client), body)


ODD = st.one_of(
    st.binary(max_size=20),
    VALUES.map(event),
    VALUES.map(lambda value: chunk({"content": value, "tool_calls": value})),
    VALUES.map(lambda value: event({"choices": value})),
    VALUES.map(lambda value: event({"contentBlockDelta": {"contentBlockIndex": 0, "delta": value}})),
    VALUES.map(lambda value: event({"metadata": {"usage": value}})),
    VALUES.map(lambda value: event({"candidates": [{"content": {"parts": [value, {"text": value}]}}]})),
    VALUES.map(lambda value: event({"candidates": value, "usageMetadata": value, "promptFeedback": value})),
    st.sampled_from([text("a"), STOP]),
)


@pytest.mark.parametrize("client", CLIENTS)
@twice
@given(odd=st.lists(ODD, max_size=6))
def test_a_stream_is_read_or_a_backend_error(client: DialectName, odd: list[bytes]) -> None:
    for way in BEHIND[client]:
        note(" over ".join(way))
        reader = wire(*way).reader(request_in(client, stream=True))
        with suppress(BackendError):
            for piece in odd:
                reader.feed(piece)
                if reader.ended:
                    break
            reader.eof()
            reader.completion()
        reader.delivered_text()


@pytest.mark.parametrize("call", [{}, {"function": None}, {"function": "look"}, {"id": "c1", "function": {}}], ids=str)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_call_without_a_function_is_read_or_garbage(client: DialectName, call: dict[str, Any]) -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    with suppress(BackendError):
        wire(client, "openai_chat").plain(request_in(client), orjson.dumps(body))
