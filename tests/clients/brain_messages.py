"""The scripted upstream in Anthropic's words: messages and their count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from tests.clients.brain import Answer, Question, Refused, Tool, Turn
from tests.clients.brain_chat import text_of

_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
    529: "overloaded_error",
}  # fmt: skip


def error(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    kind = _KINDS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_brain"}


def parse(body: dict[str, Any]) -> Question:
    _check(body["messages"])
    turns = [Turn("system", text_of(body.get("system")))]
    for message in body["messages"]:
        turns.extend(_turns(message))
    choice = body.get("tool_choice") or {}
    form = (body.get("output_config") or {}).get("format") or body.get("output_format")
    return Question(
        turns=tuple(turns),
        tools={tool["name"]: Tool(tool["input_schema"]) for tool in body.get("tools") or () if "input_schema" in tool},
        forced=choice.get("type") == "any",
        wanted=choice.get("name", ""),
        schema=form["schema"] if form else None,
    )


def _check(messages: list[dict[str, Any]]) -> None:
    """Anthropic's rule: the results of the calls in a turn stand in the next one."""
    owed: set[str] = set()
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        if {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"} != owed:
            raise Refused(400, f"The turn must have the results of {owed}.")
        owed = {block["id"] for block in blocks if block["type"] == "tool_use"}


def _turns(message: dict[str, Any]) -> Iterator[Turn]:
    content = message["content"]
    blocks = [] if isinstance(content, str) else content
    for block in blocks:
        if block["type"] == "tool_result":
            yield Turn("tool", text_of(block.get("content")))
    if text := text_of(content):
        yield Turn(message["role"], text)


def count(body: dict[str, Any]) -> dict[str, Any]:
    return {"input_tokens": sum(len(turn.text.split()) for turn in parse(body).turns) or 1}


def render(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    content = [block | filled for block, filled in _blocks(said)]
    return {**_message(body, said), "content": content, "stop_reason": _stop(said)}


def events(body: dict[str, Any], said: Answer) -> Iterator[bytes]:
    yield _event({"type": "message_start", "message": _message(body, said)})
    yield _event({"type": "ping"})
    for index, (block, _) in enumerate(_blocks(said)):
        yield _event({"type": "content_block_start", "index": index, "content_block": block})
        for number, delta in enumerate(_deltas(block, said)):
            if said.broken and number == 2:
                return
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    end = {"stop_reason": _stop(said), "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": end, "usage": {"output_tokens": said.output_tokens}})
    yield _event({"type": "message_stop"})


def _blocks(said: Answer) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each block as it starts, and what is in it at the end."""
    blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if said.thought:
        whole = {"thinking": said.thought, "signature": "sig-brain"}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, whole))
    if said.text:
        blocks.append(({"type": "text", "text": ""}, {"text": said.text}))
    for number, call in enumerate(said.calls):
        start = {"type": "tool_use", "id": f"toolu_brain{said.number}x{number}", "name": call.name, "input": {}}
        blocks.append((start, {"input": call.arguments}))
    return blocks


def _deltas(block: dict[str, Any], said: Answer) -> Iterator[dict[str, Any]]:
    match block["type"]:
        case "thinking":
            for word in said.thought_words:
                yield {"type": "thinking_delta", "thinking": word}
            yield {"type": "signature_delta", "signature": "sig-brain"}
        case "text":
            for word in said.words:
                yield {"type": "text_delta", "text": word}
        case _:
            json = said.calls[int(block["id"].rpartition("x")[2])].json
            for start in range(0, len(json), 9):
                yield {"type": "input_json_delta", "partial_json": json[start : start + 9]}


def _message(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    usage = {
        "input_tokens": said.input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": said.output_tokens,
    }
    return {
        "id": f"msg_brain{said.number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _stop(said: Answer) -> str:
    return "max_tokens" if said.cut else "tool_use" if said.calls else "end_turn"


def _event(value: dict[str, Any]) -> bytes:
    return b"event: " + value["type"].encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"
