"""The worst legal bodies of every shape: as many items, values or bytes as the gateway's limits let through."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.dialects.requests.body_extent import KEYS_PER_ITEM, VALUES_PER_ITEM

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
EMBEDDINGS, COMPLETIONS = "/v1/embeddings", "/v1/completions"
_HEADROOM = 4096
"""Bytes left for what surrounds the long part of a body."""
_AROUND = 64
"""Items and values left for what surrounds the many."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What the gateway's settings allow."""

    items: int
    """`requests.max_items`."""
    bytes: int
    """`requests.max_body_bytes`."""
    model: str

    @property
    def keys(self) -> int:
        return self.items * KEYS_PER_ITEM

    @property
    def values(self) -> int:
        return self.items * VALUES_PER_ITEM


@dataclass(frozen=True, slots=True)
class Body:
    name: str
    path: str
    data: bytes


def bodies(extent: Extent) -> Iterator[Body]:
    """Each is made when it is asked for: together they would take a gigabyte."""
    for name, path, make in _SHAPES:
        fields = make(extent)
        data = fields if isinstance(fields, bytes) else orjson.dumps({"model": extent.model, **fields})
        yield Body(name, path, data)


def _many(extent: Extent, one: Any, each: int) -> list[Any]:
    """`one` as often as the items and the bytes allow, where it has `each` objects and arrays of its own."""
    size = len(orjson.dumps(one)) + 1
    values, keys = orjson.dumps(one).count(b",") + 1, orjson.dumps(one).count(b'":')
    most = min(
        (extent.items - _AROUND) // each if each else extent.bytes,
        (extent.values - _AROUND) // values,
        (extent.keys - _AROUND) // keys if keys else extent.bytes,
        (extent.bytes - _HEADROOM) // size,
    )
    return [one] * most


def _text(extent: Extent, piece: str) -> str:
    """`piece` repeated to the limit of bytes, as JSON writes it."""
    size = len(orjson.dumps(piece)) - 2
    return piece * ((extent.bytes - _HEADROOM) // size)


def _user(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


def _chat(one: Any, each: int) -> Callable[[Extent], dict[str, Any]]:
    return lambda extent: {"messages": _many(extent, one, each)}


def _parts(one: Any, each: int) -> Callable[[Extent], dict[str, Any]]:
    return lambda extent: _user(_many(extent, one, each))


def _beside(name: str, one: Any, each: int, path: str = CHAT) -> Callable[[Extent], dict[str, Any]]:
    """Many of `one` in the field `name` beside a short question."""
    around: dict[str, Any] = {"input": "hello"} if path == RESPONSES else _user("hello")
    more = {"max_tokens": 16} if path == MESSAGES else {}
    return lambda extent: {**around, **more, name: _many(extent, one, each)}


def _user_text(piece: str) -> Callable[[Extent], dict[str, Any]]:
    return lambda extent: _user(_text(extent, piece))


def _items(one: Any, each: int) -> Callable[[Extent], dict[str, Any]]:
    return lambda extent: {"input": _many(extent, one, each)}


def _claude(one: Any, each: int) -> Callable[[Extent], dict[str, Any]]:
    return lambda extent: {"max_tokens": 16, "messages": _many(extent, one, each)}


def _blocks(one: Any, each: int) -> Callable[[Extent], dict[str, Any]]:
    return lambda extent: {"max_tokens": 16, **_user(_many(extent, one, each))}


def _keyed(name: str) -> Callable[[Extent], dict[str, Any]]:
    """An object with as many keys as there may be, all different."""
    return lambda extent: {**_user("hello"), name: {str(key): 1 for key in range(extent.keys - _AROUND)}}


def _schema(extent: Extent) -> dict[str, Any]:
    properties = {f"p{number}": {"type": "string"} for number in range(extent.items - _AROUND)}
    form = {"name": "s", "schema": {"type": "object", "properties": properties}}
    return {**_user("hello"), "response_format": {"type": "json_schema", "json_schema": form}}


def _deep(extent: Extent) -> bytes:
    """Chains of arrays, each as deep as a body may be."""
    depth = 120
    chain = b"[" * depth + b"]" * depth
    chains = b",".join([chain] * ((extent.items - _AROUND) // depth))
    return b'{"model":"%b","messages":[{"role":"user","content":"hello"}],"extra":[%b]}' % (
        extent.model.encode(),
        chains,
    )


def _escaped(extent: Extent, piece: bytes) -> bytes:
    text = piece * ((extent.bytes - _HEADROOM) // len(piece))
    return b'{"model":"%b","messages":[{"role":"user","content":"%b"}]}' % (extent.model.encode(), text)


def _huge_integers(extent: Extent) -> bytes:
    numbers = b",".join([b"9" * 300] * min(extent.values - _AROUND, (extent.bytes - _HEADROOM) // 301))
    return b'{"model":"%b","messages":[{"role":"user","content":"hello"}],"extra":[%b]}' % (
        extent.model.encode(),
        numbers,
    )


def _alternating(extent: Extent) -> dict[str, Any]:
    pair = [{"role": "user", "content": "and?"}, {"role": "assistant", "content": "so"}]
    return {"messages": pair * ((extent.items - _AROUND) // 2)}


def _tool_loop(extent: Extent) -> dict[str, Any]:
    turns: list[Any] = [{"role": "user", "content": "go"}]
    for number in range((extent.items - _AROUND) // 5):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        turns.append({"role": "tool", "tool_call_id": f"c{number}", "content": "1"})
    return {"messages": turns}


def _attached(kind: str, extent: Extent) -> dict[str, Any]:
    data = base64.b64encode(b"%PDF-1.4\n" + b"\0" * ((extent.bytes - _HEADROOM) * 3 // 4 - 16)).decode()
    if kind == "image":
        return _user([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}])
    if kind == "audio":
        return _user([{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}])
    return _user([{"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}}])


_TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
_FLAT_TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
_PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"}}
_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
_OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "1"}
_REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
_USE: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
_RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a"}]}
_SHAPES: tuple[tuple[str, str, Callable[[Extent], dict[str, Any] | bytes]], ...] = (
    ("chat: short messages", CHAT, _chat({"role": "user", "content": "a"}, 1)),
    ("chat: alternating messages", CHAT, _alternating),
    ("chat: system messages", CHAT, _chat({"role": "system", "content": "a"}, 1)),
    ("chat: messages with a name", CHAT, _chat({"role": "user", "content": "a", "name": "n"}, 1)),
    ("chat: messages of one part", CHAT, _chat({"role": "user", "content": [{"type": "text", "text": "a"}]}, 3)),
    ("chat: calls and results", CHAT, _tool_loop),
    ("chat: text parts", CHAT, _parts({"type": "text", "text": "a"}, 1)),
    ("chat: image parts", CHAT, _parts(_IMAGE, 2)),
    ("chat: file parts", CHAT, _parts(_PDF, 2)),
    ("chat: tools", CHAT, _beside("tools", _TOOL, 3)),
    ("chat: functions", CHAT, _beside("functions", {"name": "f", "parameters": {}}, 2)),
    ("chat: schema", CHAT, _schema),
    ("chat: stop list", CHAT, _beside("stop", "a", 0)),
    ("chat: logit_bias", CHAT, _keyed("logit_bias")),
    ("chat: metadata", CHAT, _keyed("metadata")),
    ("chat: unknown strings", CHAT, _beside("extra", "abcdefgh", 0)),
    ("chat: unknown numbers", CHAT, _beside("extra", 1.5, 0)),
    ("chat: unknown arrays", CHAT, _beside("extra", [], 1)),
    ("chat: unknown objects", CHAT, _beside("extra", {"a": {"b": {}}}, 3)),
    ("chat: deep arrays", CHAT, _deep),
    ("chat: huge integers", CHAT, _huge_integers),
    ("chat: words", CHAT, _user_text("What is it that we know? ")),
    ("chat: spaces", CHAT, _user_text(" ")),
    ("chat: one word", CHAT, _user_text("a")),
    ("chat: digits", CHAT, _user_text("1")),
    ("chat: line breaks", CHAT, _user_text("\n")),
    ("chat: quotes", CHAT, _user_text('"')),
    ("chat: backslashes", CHAT, _user_text("\\")),
    ("chat: brackets", CHAT, _user_text("[{,")),
    ("chat: accents", CHAT, _user_text("á")),
    ("chat: CJK", CHAT, _user_text("字")),
    ("chat: emoji", CHAT, _user_text("😀")),
    ("chat: escapes", CHAT, lambda extent: _escaped(extent, rb"\u00e1")),
    ("chat: surrogates", CHAT, lambda extent: _escaped(extent, rb"\ud83d\ude00")),
    ("chat: unknown text", CHAT, lambda extent: {**_user("hello"), "extra": _text(extent, "a")}),
    ("chat: image of all bytes", CHAT, lambda extent: _attached("image", extent)),
    ("chat: recording of all bytes", CHAT, lambda extent: _attached("audio", extent)),
    ("chat: file of all bytes", CHAT, lambda extent: _attached("file", extent)),
    ("responses: messages", RESPONSES, _items({"role": "user", "content": "a"}, 1)),
    ("responses: calls", RESPONSES, _items(_CALL, 1)),
    ("responses: outputs", RESPONSES, _items(_OUTPUT, 1)),
    ("responses: reasoning", RESPONSES, _items(_REASONING, 2)),
    ("responses: tools", RESPONSES, _beside("tools", _FLAT_TOOL, 2, RESPONSES)),
    ("responses: words", RESPONSES, lambda extent: {"input": _text(extent, "What is it? ")}),
    ("messages: short messages", MESSAGES, _claude({"role": "user", "content": "a"}, 1)),
    ("messages: text blocks", MESSAGES, _blocks({"type": "text", "text": "a"}, 1)),
    ("messages: tool uses", MESSAGES, _blocks(_USE, 2)),
    ("messages: tool results", MESSAGES, _blocks(_RESULT, 3)),
    ("messages: tools", MESSAGES, _beside("tools", {"name": "f", "input_schema": {"type": "object"}}, 2, MESSAGES)),
    ("messages: system blocks", MESSAGES, _beside("system", {"type": "text", "text": "a"}, 1, MESSAGES)),
    ("messages: words", MESSAGES, lambda extent: {"max_tokens": 16, **_user(_text(extent, "What is it? "))}),
    ("embeddings: texts", EMBEDDINGS, lambda extent: {"input": ["a"] * 10_000}),
    ("embeddings: long texts", EMBEDDINGS, lambda extent: {"input": ["word " * 380] * 10_000}),
    ("embeddings: tokens", EMBEDDINGS, _items(1, 0)),
    ("embeddings: arrays of tokens", EMBEDDINGS, _items([1, 2, 3], 1)),
    ("completions: tokens", COMPLETIONS, lambda extent: {"prompt": [1] * (extent.values - _AROUND)}),
    ("completions: texts", COMPLETIONS, lambda extent: {"prompt": ["a"] * 10_000}),
)  # fmt: skip
