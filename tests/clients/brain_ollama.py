"""The scripted upstream in Ollama's words: `/api/chat`, whole and as lines of JSON, and `/api/embed`."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Iterator
from typing import Any

import orjson

from tests.clients.brain import Answer, Question, Refused, Tool, Turn

PATHS = ("/api/chat", "/api/embed", "/v1/completions")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "model": str, "messages": list, "stream": bool, "truncate": bool, "shift": bool, "options": dict, "tools": list,
    "format": (str, dict), "think": (bool, str), "keep_alive": (str, int), "logprobs": bool, "top_logprobs": int,
}  # fmt: skip
_MESSAGE: dict[str, type] = {
    "role": str, "content": str, "thinking": str, "images": list, "tool_calls": list, "tool_name": str,
    "tool_call_id": str,
}  # fmt: skip


def error(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": message}


def parse(body: dict[str, Any]) -> Question:
    _check(body)
    form = body.get("format")
    return Question(
        turns=tuple(Turn(message["role"], message["content"]) for message in body["messages"]),
        tools={tool["function"]["name"]: Tool(tool["function"]["parameters"]) for tool in body.get("tools") or ()},
        schema=form if isinstance(form, dict) else {} if form == "json" else None,
        thinks=bool(body.get("think")),
    )


def _check(body: dict[str, Any]) -> None:
    """The types of Ollama's own structs; a field that they lack would be ignored, so that here it is a mistake."""
    for value, types in ((body, _TYPES), *((message, _MESSAGE) for message in body["messages"])):
        if not all(isinstance(inner, types.get(name, ())) for name, inner in value.items()):  # type: ignore[attr-defined]
            raise Refused(400, f"Unknown fields or wrong types: {value}")
    called: list[str] = []
    for message in body["messages"]:
        called += [call["function"]["name"] for call in message.get("tool_calls") or ()]
        if message["role"] == "tool" and message.get("tool_name") not in called:
            raise Refused(400, "A result must name the function that was called before.")
        if not all(isinstance(call["function"]["arguments"], dict) for call in message.get("tool_calls") or ()):
            raise Refused(400, "Arguments must be an object.")
        try:
            _ = [b64decode(image, validate=True) for image in message.get("images") or ()]
        except Error as broken:
            raise Refused(400, "illegal base64 data") from broken


def render(body: dict[str, Any], said: Answer) -> dict[str, Any]:
    thought = {"thinking": said.thought} if said.thought else {}
    return _line(body, said.text, **thought, **_calls(said)) | _end(said)


def events(body: dict[str, Any], said: Answer) -> Iterator[bytes]:
    for word in said.thought_words:
        yield _written(_line(body, "", thinking=word))
    for number, word in enumerate(said.words):
        if said.broken and number == 2:
            return
        yield _written(_line(body, word))
    for number in range(len(said.calls)):  # each call on a line of its own
        yield _written(_line(body, "", tool_calls=_calls(said)["tool_calls"][number : number + 1]))
    yield _written(_line(body, "") | _end(said))


def embed(body: dict[str, Any]) -> dict[str, Any]:
    """As the vectors of `brain_chat`, so that any client can be told the same."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = [[float(len(text)), 1.0, 2.0, 3.0] for text in texts]
    return {"model": body["model"], "embeddings": vectors, "prompt_eval_count": sum(len(text) for text in texts)}


def _calls(said: Answer) -> dict[str, Any]:
    made = [{"function": {"name": call.name, "arguments": call.arguments}} for call in said.calls]
    return {"tool_calls": made} if made else {}


def _line(body: dict[str, Any], text: str, **message: Any) -> dict[str, Any]:
    spoken = {"role": "assistant", "content": text, **message}
    return {"model": body["model"], "created_at": "2026-11-25T00:00:00Z", "message": spoken, "done": False}


def _end(said: Answer) -> dict[str, Any]:
    counts = {"prompt_eval_count": said.input_tokens, "eval_count": said.output_tokens}
    return {
        "done": True,
        "done_reason": "length" if said.cut else "stop",
        "total_duration": 1,
        "load_duration": 1,
        **counts,
    }


def _written(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"
