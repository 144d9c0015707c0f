"""Writes answers in Gemini's format: whole, streamed and replayed."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.gemini_generate.request import SHOWS_THOUGHTS
from gateway.dialects.openai_chat.message import objects, signature_of
from gateway.dialects.streams.text_run import events_with
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest

_FINISH = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
"""OpenAI's finish reason → Gemini's finish reason. All other reasons become STOP."""


def reply(request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    """The whole answer, made from a chat completion."""
    shows = bool(request.echoed.get(SHOWS_THOUGHTS))
    candidates = [
        _candidate(index, _parts(choice["message"], shows=shows), choice.get("finish_reason"))
        for index, choice in enumerate(completion["choices"])
    ]
    return {"candidates": candidates, **_beside(request, completion, usage)}


def _beside(request: CompletionRequest, original: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    model, name = original.get("model"), original.get("id")
    found: dict[str, Any] = {"modelVersion": model if type(model) is str and model else request.model}
    found["responseId"] = name if type(name) is str and name else request.id
    return {**found, "usageMetadata": usage_of(usage)} if usage else found


def usage_of(usage: Usage) -> dict[str, int]:
    """Gemini's usage object. In Gemini's format, thinking tokens are not part of the answer's tokens."""
    return {
        "promptTokenCount": usage.all_input,
        "candidatesTokenCount": usage.all_output - usage.reasoning_tokens,
        "totalTokenCount": usage.total,
        **({"cachedContentTokenCount": usage.cached_tokens} if usage.cached_tokens else {}),
        **({"thoughtsTokenCount": usage.reasoning_tokens} if usage.reasoning_tokens else {}),
    }


def _candidate(index: int, parts: list[dict[str, Any]], finish: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": index}
    return {**found, "finishReason": _FINISH.get(finish, "STOP")} if finish else found


def _parts(message: dict[str, Any], *, shows: bool) -> list[dict[str, Any]]:
    parts = _texts(message, shows=shows)
    for call in objects(message.get("tool_calls")):
        if type(function := call.get("function")) is dict:
            parts.append(_call(call, function.get("name"), function.get("arguments")))
    return parts


def _texts(message: dict[str, Any], *, shows: bool) -> list[dict[str, Any]]:
    thought = message.get("reasoning_content") or message.get("reasoning")
    parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if shows and type(thought) is str else []
    texts = (message.get(name) for name in ("content", "refusal"))
    return [*parts, *({"text": text} for text in texts if type(text) is str and text)]


def _call(call: dict[str, Any], name: Any, arguments: Any) -> dict[str, Any]:
    try:
        given = orjson.loads(arguments or "{}")
    except (orjson.JSONDecodeError, TypeError):
        given = {}
    made = {"name": name, "args": given if type(given) is dict else {}}
    part: dict[str, Any] = {"functionCall": {"id": call["id"], **made} if call.get("id") else made}
    signature = signature_of(call)
    return {**part, "thoughtSignature": signature} if signature else part


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


class GeminiWriter:
    """Implements `Writer` for Gemini. Function calls are written whole, because Gemini does not stream parts."""

    def __init__(self, request: CompletionRequest) -> None:
        self._request, self._shows = request, bool(request.echoed.get(SHOWS_THOUGHTS))
        self._first: dict[str, Any] = {}
        self._calls: dict[int, dict[int, dict[str, Any]]] = {}
        """Index of a candidate → index of a call → the call as far as it was received."""
        self._finish: dict[int, str] = {}

    def write(self, chunk: dict[str, Any]) -> bytes:
        """The event for a chunk of the answer; may be empty. The first chunk always gives an event, so that the client
        sees the beginning."""
        begins, self._first = not self._first, self._first or chunk
        out = []
        for choice in chunk["choices"]:
            index, delta = choice.get("index", 0), choice.get("delta") or {}
            if choice.get("finish_reason"):
                self._finish[index] = choice["finish_reason"]
            for piece in delta.get("tool_calls") or ():
                self._keep(self._calls.setdefault(index, {}), piece)
            if parts := _texts(delta, shows=self._shows):
                out.append(event({"candidates": [_candidate(index, parts)], **self._beside(None)}))
        if begins and not out:
            out.append(event({"candidates": [_candidate(0, [{"text": ""}])], **self._beside(None)}))
        return b"".join(out)

    def more(self, texts: list[str]) -> bytes | None:
        template = event({"candidates": [_candidate(0, [{"text": ""}])], **self._beside(None)})
        before, key, after = template.partition(b'"text":"')  # its first occurrence, never inside a string
        return events_with(before + key, texts, after)

    def _keep(self, calls: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
        call = calls.setdefault(piece.get("index", len(calls)), {"name": "", "arguments": ""})
        function = piece.get("function") or {}
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""
        call |= {name: piece[name] for name in ("id", "extra_content") if piece.get(name)}

    def _beside(self, usage: Usage | None) -> dict[str, Any]:
        return _beside(self._request, self._first, usage)

    def end(self, finish: str, usage: Usage | None) -> bytes:
        candidates = []
        for index in sorted({0, *self._finish, *self._calls}):
            parts = [_call(call, call["name"], call["arguments"]) for call in self._calls.get(index, {}).values()]
            candidates.append(_candidate(index, parts or [{"text": ""}], self._finish.get(index, finish) or "stop"))
        return event({"candidates": candidates, **self._beside(usage)})

    def whole(self) -> bytes | None:
        return None
