"""The providers of the mixed day: they answer with recorded answers, and bill by the rules of prompt caches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from gateway.context.bill.blocks import BlockReader
from gateway.context.bill.prompt_cache import PromptCache
from gateway.context.count import Counter, family_factor
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import rules_of
from loadtests.day_questions import USUAL_TOKENS, Question

TURN_BASE = 30_000
"""`max_tokens` of the first turn of an agent's session. Each turn adds one, so that the provider knows the turn."""
_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_FILLER = "".join(f"{one}{other} " for one in _CONSONANTS for other in _CONSONANTS)
"""Text without a language, of three characters a token. It is longer than any sequence whose repetition the gateway
takes for a sign of a weak answer, because the recorded answers that it stands for are not known to repeat."""
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n"
_VECTOR = [0.0] * 8
FRESH_S = 1e-6
"""Seconds until the first byte for each token of the prompt that is not cached."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the provider billed it. `cost_pico`: at the list price, in pico-dollars."""

    at: float
    pool: str
    model: str
    usage: Usage
    cost_pico: int


class Speed(NamedTuple):
    """How fast a scripted model answers."""

    first_byte_s: float
    tokens_per_s: float


class DayProvider:
    """Serves chat completions, Anthropic's messages and embeddings for all models."""

    def __init__(
        self, questions: Mapping[str, Question], prices: Mapping[str, Price], speeds: Mapping[str, Speed]
    ) -> None:
        """`questions`: by `key_of` their last text. `speeds`: by model."""
        self.calls: list[Call] = []
        self._questions, self._prices, self._speeds = questions, prices, speeds
        self._counter = Counter()
        self._readers: dict[float, BlockReader] = {}
        self._caches: dict[tuple[str, str], PromptCache] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                body = orjson.loads(await reader.readexactly(int(length.split(b":")[1])))
                path = head.split(b" ", 2)[1]
                await self._answer(path, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: bytes, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        model = body["model"]
        if path.endswith(b"/embeddings"):
            tokens = sum(len(text) // 4 for text in body["input"])
            self._book("vectors", model, Usage(tokens))
            await asyncio.sleep(self._speeds[model].first_byte_s)
            _plain(writer, _vectors(body, tokens))
        else:
            question = self._questions[key_of(body)]
            usage = self.bill(question, body)
            self._book(question.pool, model, usage)
            speed = self._speeds[model]
            writing_s = usage.output_tokens / speed.tokens_per_s
            await asyncio.sleep(speed.first_byte_s + FRESH_S * (usage.all_input - usage.cached_tokens))
            text = text_of(question, model, usage.output_tokens)
            if path.endswith(b"/messages"):
                await _send(writer, _messages(body, text, usage), writing_s)
            elif body.get("stream"):
                await _send(writer, _chat_events(body, text, usage), writing_s)
            else:
                await asyncio.sleep(writing_s)
                _plain(writer, {**_frame(body), **_whole(text), "usage": _chat_usage(usage)})
        await writer.drain()

    def bill(self, question: Question, body: dict[str, Any]) -> Usage:
        """The usage under the provider's cache rules. Each session has a cache of its own, as have all other requests
        of a pool together."""
        model = body["model"]
        factor = family_factor(model)
        reader = self._readers.setdefault(factor, BlockReader(self._counter.count, factor))
        output = question.output.get(model, USUAL_TOKENS)
        at = time.monotonic() if question.at is None else question.at
        of = question.session or question.pool, model
        cache = self._caches.get(of)
        if cache is None:
            cache = self._caches[of] = PromptCache(rules_of(model))
            if question.shared:  # another session has just sent the same beginning
                begun = [{"type": "text", "text": question.shared, "cache_control": {"type": "ephemeral"}}]
                cache.bill(reader.read({"tools": body.get("tools"), "system": begun, "messages": []}), at)
        return cache.bill(reader.read(body), at, output)

    def _book(self, pool: str, model: str, usage: Usage) -> None:
        self.calls.append(Call(time.monotonic(), pool, model, usage, self._prices[model].cost(usage)))


def key_of(body: Mapping[str, Any]) -> str:
    """What tells the questions of a day apart: the session and turn of an agent's request, else all texts of the
    user and the system."""
    if body.get("max_tokens", 0) >= TURN_BASE:
        system = body.get("system")
        text = system if isinstance(system, str) else system[-1]["text"] if system else ""
        return f"{text[:60]} {body['max_tokens']}"
    return "\n".join(_text(message["content"])[:400] + _text(message["content"])[-400:] for message in body["messages"])


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def text_of(question: Question, model: str, tokens: int) -> str:
    """The answer: which question and model it is of, filler, and the recorded final answer."""
    answer = question.answers.get(model)
    end = "" if answer is None else f" The answer is: {answer}"
    size = 3 * max(0, tokens - 16)
    return f"[[{question.id}|{model}]] " + (_FILLER * (size // len(_FILLER) + 1))[:size] + end


def _frame(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-day", "object": "chat.completion", "created": 1767225600, "model": body["model"]}


def _whole(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def _chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.all_input,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _chat_events(body: Mapping[str, Any], text: str, usage: Usage) -> Iterator[bytes]:
    frame = {**_frame(body), "object": "chat.completion.chunk"}
    begin, rest = _parts(text)
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"role": "assistant", "content": begin}, None),
        ({"content": rest}, None),
        ({}, "stop"),
    ]
    for delta, finish in deltas:
        yield _data({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    yield _data({**frame, "choices": [], "usage": _chat_usage(usage)})
    yield b"data: [DONE]\n\n"


def _messages(body: Mapping[str, Any], text: str, usage: Usage) -> Iterator[bytes]:
    counted = {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_5m_tokens + usage.cache_write_1h_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_5m_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
        "output_tokens": 1,
    }
    message = {"id": "msg_day", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": counted}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
            for part in _parts(text)
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": usage.output_tokens},
        },
        {"type": "message_stop"},
    ]
    for event in events:
        yield b"event: " + str(event["type"]).encode() + b"\n" + _data(event)


def _vectors(body: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    data = [{"object": "embedding", "index": place, "embedding": _VECTOR} for place, _ in enumerate(body["input"])]
    used = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": body["model"], "data": data, "usage": used}


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _plain(writer: asyncio.StreamWriter, value: Mapping[str, Any]) -> None:
    body = orjson.dumps(value)
    writer.write((_HEAD % b"application/json") + b"content-length: %d\r\n\r\n%b" % (len(body), body))


def _parts(text: str) -> tuple[str, str]:
    """The beginning of an answer, which says which question it is of, and the rest."""
    place = text.index("]] ") + 3
    return text[:place], text[place:]


async def _send(writer: asyncio.StreamWriter, events: Iterator[bytes], writing_s: float) -> None:
    """Send a stream. `writing_s`: seconds from the first part of the text to the rest."""
    writer.write((_HEAD % b"text/event-stream") + b"transfer-encoding: chunked\r\n\r\n")
    for event in events:
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        if b"]] " in event:
            await writer.drain()
            await asyncio.sleep(writing_s)
    writer.write(b"0\r\n\r\n")
