"""Writes answers in Ollama's format: whole, streamed as lines of JSON, and replayed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import orjson

from gateway.dialects.ollama_chat.request import THINKS
from gateway.dialects.streams.text_run import events_with
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest

_BREAKS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Characters in UTF-8 that JSON may contain, and at which Python's clients break lines → the escape sequences."""


def line(value: dict[str, Any]) -> bytes:
    return on_one_line(orjson.dumps(value))


def on_one_line(data: bytes) -> bytes:
    """`data`, a JSON object, as one line. Characters that some clients take for a line break are escaped."""
    return _escaped(data) + b"\n"


def _escaped(data: bytes) -> bytes:
    for character, escaped in _BREAKS:
        data = data.replace(character, escaped)
    return data


def reply(request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    """The whole answer, made from a chat completion."""
    chosen = completion["choices"][0]
    message = chosen["message"]
    said = {**_texts(message, request), **_calls(message.get("tool_calls") or ())}
    return {**_head(request, completion), "message": said, **_end(chosen.get("finish_reason"), usage)}


def _head(request: CompletionRequest, said: dict[str, Any]) -> dict[str, Any]:
    made = said.get("created")
    at = datetime.fromtimestamp(made if type(made) is int and 0 < made < 2**33 else int(time.time()), UTC)
    return {"model": request.model, "created_at": at.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _texts(message: dict[str, Any], request: CompletionRequest) -> dict[str, Any]:
    """The texts of a message, without the tool calls. The model's thinking is included only if the client asked for
    it."""
    texts = (message.get(name) for name in ("content", "refusal"))
    content = "".join(text for text in texts if type(text) is str)
    thought = message.get("reasoning_content") or message.get("reasoning")
    shown = {"thinking": thought} if request.echoed.get(THINKS) and type(thought) is str and thought else {}
    return {"role": "assistant", "content": content, **shown}


def _calls(calls: Any) -> dict[str, Any]:
    made = []
    for index, call in enumerate(calls):
        function = call.get("function")
        if type(function) is not dict:  # an answer of a faulty backend
            function = {}
        try:
            given = orjson.loads(function.get("arguments") or "{}")
        except (orjson.JSONDecodeError, TypeError):
            given = {}
        about = {"index": index, "name": function.get("name"), "arguments": given if type(given) is dict else {}}
        made.append({**({"id": call["id"]} if call.get("id") else {}), "function": about})
    return {"tool_calls": made} if made else {}


def _end(finish: Any, usage: Usage | None) -> dict[str, Any]:
    counts = {"prompt_eval_count": usage.all_input, "eval_count": usage.all_output} if usage else {}
    return {"done": True, "done_reason": "length" if finish == "length" else "stop", **counts}


def stop_at(request: CompletionRequest, delivered: Usage) -> dict[str, Any]:
    """The last line of a stream that the gateway ends early."""
    empty = {"role": "assistant", "content": ""}
    return {**_head(request, {}), "message": empty, **_end("length", delivered)}


def choice(body: dict[str, Any]) -> dict[str, Any]:
    """A stored answer, converted to a chat choice."""
    said = body["message"]
    message: dict[str, Any] = {"role": "assistant", "content": said["content"]}
    if said.get("thinking"):
        message["reasoning_content"] = said["thinking"]
    calls = said.get("tool_calls")
    if calls:
        message["tool_calls"] = [_as_chat(call, f"call_{index}") for index, call in enumerate(calls)]
    finish = "tool_calls" if calls else body["done_reason"]
    return {"index": 0, "message": message, "finish_reason": finish}


def _as_chat(call: dict[str, Any], name: str) -> dict[str, Any]:
    function = call["function"]
    made = {"name": function["name"], "arguments": orjson.dumps(function["arguments"]).decode()}
    return {"id": call.get("id") or name, "type": "function", "function": made}


class OllamaWriter:
    """Implements `Writer` for Ollama. Tool calls are written whole, because Ollama does not stream parts."""

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request
        self._head: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}

    def write(self, chunk: dict[str, Any]) -> bytes:
        """The line for a chunk of the answer; may be empty. The first chunk always gives a line, so that the client
        sees the beginning."""
        begins, self._head = not self._head, self._head or _head(self._request, chunk)
        out = b""
        for each in chunk["choices"][:1]:
            delta = each.get("delta") or {}
            for piece in delta.get("tool_calls") or ():
                self._keep(piece)
            said = _texts(delta, self._request)
            if begins or said["content"] or "thinking" in said:
                out += line({**self._head, "message": said, "done": False})
        return out

    def more(self, texts: list[str]) -> bytes | None:
        template = line({**self._head, "message": {"role": "assistant", "content": ""}, "done": False})
        before, key, after = template.rpartition(b'"content":"')  # its last occurrence, never inside a string
        return _escaped(events_with(before + key, texts, after))

    def _keep(self, piece: dict[str, Any]) -> None:
        call = self._calls.setdefault(piece.get("index", len(self._calls)), {"function": {"name": "", "arguments": ""}})
        function, said = call["function"], piece.get("function") or {}
        function["name"] += said.get("name") or ""
        function["arguments"] += said.get("arguments") or ""
        if piece.get("id"):
            call["id"] = piece["id"]

    def end(self, finish: str, usage: Usage | None) -> bytes:
        empty = {"role": "assistant", "content": ""}
        calls = _calls(self._calls.values())
        out = line({**self._head, "message": {**empty, **calls}, "done": False}) if calls else b""
        return out + line({**self._head, "message": empty, **_end(finish, usage)})

    def whole(self) -> bytes | None:
        return None
