"""However a stream arrives, the client gets what it gets when every event is parsed by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.backends.providers.bedrock.event_stream import Decoder
from gateway.dialects.registry import wire
from gateway.domain.request import CompletionRequest, DialectName
from tests.dialects.samples import cut, read, steady
from tests.support.requests import request_in

CLIENTS: tuple[DialectName, ...] = (
    *("openai_chat", "anthropic_messages", "openai_responses", "openai_completions"),
    *("gemini_generate", "bedrock_converse", "ollama_chat"),
)
BACKENDS: tuple[DialectName, ...] = (
    *("openai_chat", "anthropic_messages", "openai_responses", "bedrock_converse", "gemini_generate", "ollama_chat"),
)
WRITTEN_AGAIN = {("bedrock_converse", "bedrock_converse"), ("gemini_generate", "gemini_generate")}
"""Pairs of equal dialects whose events are read and written again."""
PAIRS = [pair for pair in product(CLIENTS, BACKENDS) if pair[0] != pair[1] or pair in WRITTEN_AGAIN]
TEXT = st.text(alphabet=st.sampled_from('ab"\\\n\t/ñ🌈,:{}[]') | st.characters(exclude_categories=["Cs"]), max_size=6)
TEXTS = st.tuples(st.just("text"), st.lists(TEXT | st.sampled_from([" the", " ledger", "\\", '","', "}}"]), max_size=8))
STEP = st.one_of(
    TEXTS,
    TEXTS,
    st.tuples(st.just("think"), st.lists(TEXT.filter(bool), min_size=1, max_size=6)),
    st.tuples(st.just("call"), st.sampled_from([['{"a', '":"', "ñ", '\\"', '"}'], ['{"a', '":1', ","]])),
    st.tuples(st.just("ping"), st.just([""])),
)
Step = tuple[str, list[str]]
VARYING = re.compile(rb'"(created|created_at|completed_at|latencyMs)":("[^"]*"|\d+)')


class Sender:
    """Writes a stream as a backend would. `alike`: in its usual form; otherwise in a form that is parsed."""

    def __init__(self, *, alike: bool, ascii_only: bool) -> None:
        self.alike, self._ascii, self._number = alike, ascii_only, 0

    def event(self, value: dict[str, Any], **odd: Any) -> bytes:
        self._number += 1
        value = value if self.alike else {**value, **{name: str(self._number) for name in odd}}
        data = json.dumps(value, ensure_ascii=self._ascii, separators=(",", ":")).encode()
        blank = b" " if self.alike else b""
        name = b"event:%b%b\n" % (blank, value["type"].encode()) if "type" in value else b""
        return b"%bdata:%b%b\n\n" % (name, blank, data)

    def ping(self) -> bytes:
        return b": alive\n\n"

    def openai_chat(self, steps: list[Step]) -> Iterator[bytes]:
        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
            top = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
            return self.event(top, obfuscation=1)

        yield chunk({"role": "assistant", "content": ""})
        calls = 0
        for kind, texts in steps:
            if kind == "ping":
                yield self.ping()
                continue
            for place, text in enumerate(texts):
                function = {"name": "look", "arguments": text} if not place else {"arguments": text}
                opening = {"id": f"call_{calls}", "type": "function"} if not place else {}
                call = {"index": calls, **opening, "function": function}
                field = {"text": "content", "think": "reasoning_content"}.get(kind)
                yield chunk({field: text} if field else {"tool_calls": [call]})
            calls += kind == "call"
        yield chunk({}, "tool_calls" if calls else "stop")
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        yield self.event({"id": "c1", "created": 1, "model": "m", "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def anthropic_messages(self, steps: list[Step]) -> Iterator[bytes]:
        usage = {"input_tokens": 5, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
        yield self.event({"type": "message_start", "message": message})
        index = 0
        for kind, texts in steps:
            if kind == "ping":
                yield self.event({"type": "ping"})
                continue
            name = {"text": "text", "think": "thinking"}.get(kind, "tool_use")
            call = {"id": f"toolu_{index}", "name": "look", "input": {}}
            block = {"type": name, **(call if kind == "call" else {name: ""})}
            yield self.event({"type": "content_block_start", "index": index, "content_block": block})
            piece, field = {"call": ("input_json_delta", "partial_json")}.get(kind, (f"{name}_delta", name))
            for text in texts:
                value = {"type": "content_block_delta", "index": index, "delta": {"type": piece, field: text}}
                yield self.event(value, x=1)
            if kind == "think":
                delta = {"type": "signature_delta", "signature": "c2ln"}
                yield self.event({"type": "content_block_delta", "index": index, "delta": delta})
            yield self.event({"type": "content_block_stop", "index": index})
            index += 1
        yield self.event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
        yield self.event({"type": "message_stop"})

    def openai_responses(self, steps: list[Step]) -> Iterator[bytes]:
        response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
        yield self.event({"type": "response.created", "response": {**response, "status": "in_progress"}})
        names = {"text": "output_text", "think": "reasoning_summary_text", "call": "function_call_arguments"}
        for place, (kind, texts) in enumerate(steps):
            if kind == "ping":
                yield self.ping()
                continue
            where = {"item_id": f"i_{place}", "output_index": place}
            item = {"type": "function_call", "id": f"i_{place}", "call_id": f"call_{place}", "name": "look"}
            if kind == "call":
                yield self.event({"type": "response.output_item.added", "output_index": place, "item": item})
            for text in texts:
                yield self.event({"type": f"response.{names[kind]}.delta", **where, "delta": text}, obfuscation=1)
        usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
        yield self.event(
            {"type": "response.completed", "response": {**response, "status": "completed", "usage": usage}}
        )

    def gemini_generate(self, steps: list[Step]) -> Iterator[bytes]:
        for place, (kind, texts) in enumerate(steps):
            for text in texts:
                part = {"text": {"text": text}, "think": {"text": text, "thought": True}, "ping": {}}.get(kind)
                yield self._candidate(part or {"functionCall": {"name": "look", "args": {"a": place}}})
        yield self._candidate({"text": ""}, finishReason="STOP")

    def _candidate(self, part: dict[str, Any], **more: str) -> bytes:
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, **more}
        usage = {"promptTokenCount": 5, "candidatesTokenCount": self._number, "totalTokenCount": 5 + self._number}
        event = self.event({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"})
        return event.replace(b"\n", b"\r\n") if self.alike else event

    def bedrock_converse(self, steps: list[Step]) -> Iterator[bytes]:
        yield self.event({"messageStart": {"role": "assistant"}})
        for index, (kind, texts) in enumerate(steps):
            if kind == "ping":
                yield self.ping()
                continue
            where = {"contentBlockIndex": index}
            if kind == "call":
                start = {"toolUse": {"toolUseId": f"t_{index}", "name": "look"}}
                yield self.event({"contentBlockStart": {**where, "start": start}})
            for text in texts:
                delta = {"text": {"text": text}, "think": {"reasoningContent": {"text": text}}}.get(kind)
                delta = delta or {"toolUse": {"input": text}}
                yield self.event({"contentBlockDelta": {**where, "delta": delta, "p": "abc"[: self._number % 3]}})
            yield self.event({"contentBlockStop": where})
        yield self.event({"messageStop": {"stopReason": "end_turn"}})
        yield self.event({"metadata": {"usage": {"inputTokens": 5, "outputTokens": 2, "totalTokens": 7}}})

    def ollama_chat(self, steps: list[Step]) -> Iterator[bytes]:
        def line(message: dict[str, Any], **more: Any) -> bytes:
            message = {"role": "assistant", "content": "", **message}
            return self.event({"model": "m", "created_at": "2026-11-01T10:00:00Z", "message": message, **more})

        for place, (kind, texts) in enumerate(steps):
            for text in texts:
                message = {"text": {"content": text}, "think": {"thinking": text}, "ping": {}}.get(kind)
                call = {"function": {"name": "look", "arguments": {"a": place}}}
                yield line({"tool_calls": [call]} if message is None else message, done=False)
        yield line({}, done=True, done_reason="stop", prompt_eval_count=5, eval_count=2)


def request(client: DialectName) -> CompletionRequest:
    thinks = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
    more: dict[str, Any] = thinks if client == "anthropic_messages" else {}
    streams = {} if client in ("gemini_generate", "bedrock_converse") else {"stream": True}
    made = request_in(client, request_id="req_0123456789abcdef01234567", **more, **streams)
    made.stream = True
    return made


def lines(sent: bytes, client: DialectName) -> list[Any]:
    """What a client reads: names, and data with its keys in order, without times."""
    if client == "bedrock_converse":
        found = ((each.headers[":event-type"], payload) for each in Decoder().feed(sent) for payload in each.payloads)
        sent = b"\n".join(b"%b\n%b" % pair for pair in found)
    found = []
    for line in sent.splitlines():
        data = line.removeprefix(b"data: ")
        parsed = orjson.dumps(orjson.loads(data)) if data.startswith(b"{") else line
        found.append(VARYING.sub(rb'"\1":0', parsed))
    return found


def outcome(client: DialectName, backend: DialectName, pieces: list[bytes]) -> tuple[Any, ...]:
    reader = wire(client, backend).reader(request(client))
    sent = read(reader, pieces) + reader.ending
    whole = reader.completion()
    stored = VARYING.sub(rb'"\1":0', orjson.dumps(orjson.loads(whole))) if whole else None
    said = (reader.delivered_text(), reader.delivered_characters())
    return lines(sent, client), stored, reader.finish, reader.usage, reader.chunks, reader.silent, said


@pytest.mark.parametrize(("client", "backend"), PAIRS)
@settings(steady, max_examples=30)
@given(steps=st.lists(STEP, max_size=6), at=st.lists(st.integers(0, 4000), max_size=4), ascii_only=st.booleans())
def test_events_that_arrive_together_give_what_single_events_give(
    client: DialectName, backend: DialectName, steps: list[Step], at: list[int], ascii_only: bool
) -> None:
    alike = list(getattr(Sender(alike=True, ascii_only=ascii_only), backend)(steps))
    single = list(getattr(Sender(alike=False, ascii_only=ascii_only), backend)(steps))
    expected = outcome(client, backend, single)
    assert outcome(client, backend, [b"".join(alike)]) == expected
    assert outcome(client, backend, cut(b"".join(alike), at)) == expected
