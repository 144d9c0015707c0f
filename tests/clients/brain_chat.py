"""The scripted upstream in OpenAI's older words: chat completions, legacy completions, embeddings, moderation."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any

import orjson

from tests.clients.brain import Answer, Question, Refused, Tool, Turn

_KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "invalid_request_error", 429: "requests"}
_CODES = {400: "invalid_value", 401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_ROLES: dict[str, Any] = {"developer": "system", "function": "tool"}


def error(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    kind = _KINDS.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code or _CODES.get(status)}}


def text_of(content: Any) -> str:
    """All text of a message's content, in whatever form."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or "") for part in content or () if isinstance(part, dict))


def parse(body: dict[str, Any]) -> Question:
    _check(body["messages"])
    turns = [
        Turn(_ROLES.get(message["role"], message["role"]), text_of(message.get("content")))
        for message in body["messages"]
    ]
    choice = body.get("tool_choice")
    tools = [tool["function"] for tool in body.get("tools") or () if tool.get("type") == "function"]
    form = body.get("response_format") or {}
    schema = (form.get("json_schema") or {}).get("schema", {}) if form.get("type") in _STRUCTURED else None
    return Question(
        turns=tuple(turns),
        tools={tool["name"]: Tool(tool.get("parameters") or {}) for tool in tools},
        forced=choice == "required",
        wanted=choice["function"]["name"] if isinstance(choice, dict) and "function" in choice else "",
        schema=schema,
    )


def _check(messages: list[dict[str, Any]]) -> None:
    """OpenAI's rule: the results of calls follow them at once, and there is one for each."""
    owed: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in owed:
                raise Refused(400, "A message of role tool must follow the call with its id.")
            owed.discard(message["tool_call_id"])
        elif owed:
            raise Refused(400, f"The calls {owed} have no results.")
        else:
            owed = {call["id"] for call in message.get("tool_calls") or ()}


_STRUCTURED = ("json_schema", "json_object")


def render(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.thought:
        message["reasoning_content"] = said.thought
    if said.calls:
        message["tool_calls"] = [_call(said, number, call.name, call.json) for number, call in enumerate(said.calls)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(said)}
    return {**_head(body, said, "chat.completion"), "choices": [choice], "usage": _usage(said)}


def events(body: dict[str, Any], said: Answer) -> Iterator[bytes]:
    head = _head(body, said, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _data({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for word in said.thought_words:
        yield chunk({"reasoning_content": word})
    for number, word in enumerate(said.words):
        if said.broken and number == 2:
            return
        yield chunk({"content": word})
    for number, call in enumerate(said.calls):
        whole = _call(said, number, call.name, "")
        yield chunk({"tool_calls": [{"index": number, **whole}]})
        for start in range(0, len(call.json), 9):
            piece = call.json[start : start + 9]
            yield chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(said))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _data({**head, "choices": [], "usage": _usage(said)})
    yield b"data: [DONE]\n\n"


def completion_asked(body: dict[str, Any]) -> Question:
    prompt = body["prompt"]
    return Question((Turn("user", prompt if isinstance(prompt, str) else str(prompt[0])),))


def completion(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    choice = {"index": 0, "text": said.text, "logprobs": None, "finish_reason": "stop"}
    return {**_head(body, said, "text_completion"), "choices": [choice], "usage": _usage(said)}


def completion_events(body: dict[str, Any], said: Answer) -> Iterator[bytes]:
    head = _head(body, said, "text_completion")
    for word in [*said.words, ""]:
        choice = {"index": 0, "text": word, "logprobs": None, "finish_reason": None if word else "stop"}
        yield _data({**head, "choices": [choice]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _data({**head, "choices": [], "usage": _usage(said)})
    yield b"data: [DONE]\n\n"


def embeddings(body: dict[str, Any]) -> dict[str, Any]:
    """A vector of four per input, so that order and coding can be told: the input's length, then 1, 2, 3."""
    inputs = body["input"]
    if isinstance(inputs, str) or (inputs and isinstance(inputs[0], int)):
        inputs = [inputs]
    rows = []
    for number, one in enumerate(inputs):
        vector: Any = [float(len(one)), 1.0, 2.0, 3.0]
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack("<4f", *vector)).decode()
        rows.append({"object": "embedding", "index": number, "embedding": vector})
    total = sum(len(one) for one in inputs)
    usage = {"prompt_tokens": total, "total_tokens": total}
    return {"object": "list", "data": rows, "model": body["model"], "usage": usage}


def moderation(body: dict[str, Any]) -> dict[str, Any]:
    result = {"flagged": False, "categories": {}, "category_scores": {}, "category_applied_input_types": {}}
    return {"id": "modr-brain", "model": body["model"], "results": [result]}


def _head(body: dict[str, Any], said: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-brain{said.number}", "object": kind, "created": 1_700_000_000, "model": body["model"]}


def _call(said: Answer, number: int, name: str, arguments: str) -> dict[str, Any]:
    id = f"call_brain{said.number}x{number}"
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _finish(said: Answer) -> str:
    return "length" if said.cut else "tool_calls" if said.calls else "stop"


def _usage(said: Answer) -> dict[str, Any]:
    total = said.input_tokens + said.output_tokens
    return {
        "prompt_tokens": said.input_tokens,
        "completion_tokens": said.output_tokens,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": len(said.thought_words)},
    }


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
