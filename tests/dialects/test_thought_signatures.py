"""Google's signatures of calls: Anthropic's and Responses' clients get them, return them, and no other vendor does."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.clients import at
from gateway.dialects.registry import translators, wire
from gateway.domain.chat_rules import NO_RULES, ChatRules
from gateway.domain.request import CompletionRequest, Controls, DialectName
from tests.fakes.google import event, part

GEMINI = "gemini-3-pro"
SIGNED = {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "c2ln"}
OTHER = {"functionCall": {"name": "look", "args": {"at": 2}}}
THOUGHT = {"text": "hm", "thought": True}
TOOL = {"name": "look", "input_schema": {"type": "object"}}
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 2048}}


def parsed(path: str, **fields: Any) -> CompletionRequest:
    dialect = at(path)
    assert dialect is not None
    return dialect.parse(orjson.dumps({"model": "auto", **fields}), "req_7", Controls(), {})


def messages_request(*turns: Any, stream: bool = False, **more: Any) -> CompletionRequest:
    asked = [{"role": "user", "content": "look"}, *turns]
    fields = {"messages": asked, "tools": [TOOL], "max_tokens": 4096, "stream": stream, **THINKS, **more}
    return parsed("/v1/messages", **fields)


def responses_request(*items: Any, stream: bool = False) -> CompletionRequest:
    return parsed("/v1/responses", input=[{"role": "user", "content": "look"}, *items], tools=[FUNCTION], stream=stream)


def whole(client: DialectName, request: CompletionRequest, *parts: Any) -> dict[str, Any]:
    """The plain answer to the client, if Gemini answers with `parts`."""
    reply = part(*parts, finishReason="STOP")
    found: dict[str, Any] = orjson.loads(wire(client, "gemini_generate").plain(request, orjson.dumps(reply)).body)
    return found


def streamed(client: DialectName, request: CompletionRequest, *parts: Any) -> tuple[list[dict[str, Any]], bytes]:
    """The events of the streamed answer, and the whole answer that is stored."""
    reader = wire(client, "gemini_generate").reader(request)
    data = b"".join(reader.feed(event(part(each))) for each in parts)
    data += reader.feed(event(part({"text": ""}, finishReason="STOP")))
    reader.eof()
    lines = (data + reader.ending).split(b"\n")
    events = [orjson.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    return events, reader.completion() or b""


def parts_sent(client: DialectName, request: CompletionRequest) -> list[dict[str, Any]]:
    """The parts of the model's turn that Gemini gets."""
    sent = orjson.loads(wire(client, "gemini_generate").body(request, GEMINI, None))
    parts: list[dict[str, Any]] = sent["contents"][1]["parts"]
    return parts


def blocks_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content blocks that the events of an Anthropic stream make."""
    blocks: list[dict[str, Any]] = []
    for each in events:
        if each["type"] == "content_block_start":
            blocks.append(dict(each["content_block"]))
        elif each["type"] == "content_block_delta":
            kind, text = each["delta"]["type"], list(each["delta"].values())[1]
            field = {"thinking_delta": "thinking", "signature_delta": "signature", "text_delta": "text"}.get(kind)
            if field:
                blocks[-1][field] = blocks[-1].get(field, "") + text
            else:
                blocks[-1]["input"] = orjson.loads(text)
    return blocks


@pytest.mark.parametrize("stream", [False, True])
def test_an_anthropic_client_returns_the_signature_of_a_call(stream: bool) -> None:
    request = messages_request(stream=stream)
    if stream:
        events, stored = streamed("anthropic_messages", request, THOUGHT, SIGNED, OTHER)
        content = blocks_of(events)
        assert b"c2ln" in stored
    else:
        content = whole("anthropic_messages", request, THOUGHT, SIGNED, OTHER)["content"]
    assert [block["type"] for block in content if block.get("thinking") != ""] == ["thinking", "tool_use", "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "x"}
        for block in content
        if block["type"] == "tool_use"
    ]
    again = messages_request({"role": "assistant", "content": content}, {"role": "user", "content": results})
    assert parts_sent("anthropic_messages", again) == [SIGNED, OTHER]
    claude = orjson.loads(wire("anthropic_messages", "anthropic_messages").body(again, "claude-sonnet-4-5", None))
    assert [block["type"] for block in claude["messages"][1]["content"]] == ["tool_use", "tool_use"]


def test_a_client_without_thinking_gets_no_block_that_it_did_not_ask_for() -> None:
    request = messages_request(thinking={"type": "disabled"})
    assert [block["type"] for block in whole("anthropic_messages", request, SIGNED)["content"]] == ["tool_use"]
    omitted = messages_request(thinking={"type": "adaptive", "display": "omitted"})
    kinds = [block["type"] for block in whole("anthropic_messages", omitted, THOUGHT, SIGNED)["content"]]
    assert kinds == ["thinking", "tool_use"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_responses_client_returns_the_signature_of_a_call(stream: bool) -> None:
    request = responses_request(stream=stream)
    if stream:
        events, _ = streamed("openai_responses", request, THOUGHT, SIGNED, OTHER)
        output = events[-1]["response"]["output"]
        assert [each["item"] for each in events if each["type"] == "response.output_item.done"] == output
    else:
        output = whole("openai_responses", request, THOUGHT, SIGNED, OTHER)["output"]
    calls = [item for item in output if item["type"] == "function_call"]
    assert len(calls) == 2
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "x"} for call in calls]
    again = responses_request(*output, *results)
    assert parts_sent("openai_responses", again) == [SIGNED, OTHER]
    claude = wire("openai_responses", "anthropic_messages").body(again, "claude-sonnet-4-5", None)
    assert b"c2ln" not in claude


@pytest.mark.parametrize(("keeps", "strict"), [(True, True), (False, True), (False, False)])
def test_a_strict_server_gets_a_signature_only_if_it_is_googles(keeps: bool, strict: bool) -> None:
    rules = ChatRules(keeps_signatures=True) if keeps else NO_RULES
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    own = {**call, "extra_content": {"google": {"thought_signature": "c2ln"}}}
    turn = {"role": "assistant", "content": None, "tool_calls": [own]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    request = parsed("/v1/chat/completions", messages=[{"role": "user", "content": "look"}, turn, result])
    (way, *_) = translators("openai_chat", ("openai_chat",), strict=strict, rules=rules)
    sent = orjson.loads(way.body(request, "m", None))["messages"][1]["tool_calls"]
    assert sent == [own if keeps or not strict else call]
