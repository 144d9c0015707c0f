"""A provider with a meter of its own, for hard budgets: it bills what it generated, heard by anybody or not.

What it shall do stands in each question, as JSON, so that provider and clients know the true cost of every answer.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

PRICES = {"plain": (1.0, 10.0), "thinking": (1.0, 10.0), "small": (0.1, 1.0)}
"""Model → USD per 1M tokens of input and of output."""
PAGE_TOKENS = 2000
PROMPT_TOKENS = 60
VOCABULARIES = (
    ("a ", "to ", "it ", "of ", "x = ", "is ", "was ", "5; "),
    ("a ", "to ", "the ", "lamp ", "on ", "pier ", "was ", "still ", "it ", "harbour "),
    ("the ", "keeper ", "boat ", "wrote ", "about ", "lamps ", "ships ", "and "),
)
"""Words of one token each: 3 to 5.5 characters. An answer has one of them."""
DECLINES = ("I'm ", "sorry, ", "but ", "I ", "can't ", "help ", "with ", "that.")
_FRAME = {"id": "chatcmpl-0123456789abcdef0123456789abcdef", "object": "chat.completion.chunk", "created": 1767225600}
_HOSTED = {"service_tier": "default", "system_fingerprint": "fp_0123456789", "usage": None, "obfuscation": "x" * 8}
"""An event is as long as those of the servers that models run on: about 215 bytes beside its text on one's own, 320
at OpenAI. What a gateway cannot read in usage it guesses by bytes."""
STEP_S = 0.015
"""Reasoning is billed up to the last of such steps at which the client was there."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n"


@dataclass(slots=True)
class Call:
    """One call as the provider saw it; USD."""

    model: str
    input_tokens: int
    will_have: int
    """Output tokens, if it comes to its end."""
    generated: int = 0
    over: bool = False
    port: int = 0
    """Of the client's end of its connection."""
    sent: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """(bytes, tokens) written by each moment, both since the call began; empty when it is over. Reasoning of a stream
    is in neither."""
    writer: asyncio.StreamWriter | None = None

    @property
    def written(self) -> int:
        """Output tokens."""
        return self.sent[-1][1] if self.sent else 0

    def wrote(self, count: int, tokens: int = 0) -> None:
        """So many bytes more, with so many tokens in them."""
        before = self.sent[-1]
        self.sent.append((before[0] + count, before[1] + tokens))

    @property
    def buffered(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self.writer.transport.get_write_buffer_size() if self.writer else 0

    def written_within(self, unread: int) -> int:
        """Tokens in all bytes but the last `unread` ones."""
        place = bisect_right(self.sent, self.sent[-1][0] - unread, key=lambda one: one[0])
        return self.sent[max(place - 1, 0)][1]

    def output_usd(self, tokens: int) -> float:
        return tokens * PRICES[self.model][1] / 1e6

    @property
    def billed_usd(self) -> float:
        price = PRICES[self.model]
        return (self.input_tokens * price[0] + self.generated * price[1]) / 1e6

    @property
    def final_usd(self) -> float:
        """What it will have cost in the end."""
        price = PRICES[self.model]
        output = self.generated if self.over else max(self.will_have, self.generated)
        return (self.input_tokens * price[0] + output * price[1]) / 1e6


@dataclass
class Meter:
    calls: list[Call] = field(default_factory=list)
    under_way: list[Call] = field(default_factory=list)
    over_usd: float = 0.0
    """Billed for the calls that are over."""
    capped: int = 0
    """Answers that ended at a limit which the client had not set."""
    whole: int = 0
    curve: list[tuple[float, float, int]] = field(default_factory=list)
    """Seconds, USD billed, calls under way."""
    failed: set[int] = field(default_factory=set)
    """Questions that have met their scripted failure."""

    @property
    def bill_usd(self) -> float:
        return self.over_usd + sum(call.billed_usd for call in self.under_way)

    @property
    def final_usd(self) -> float:
        return self.over_usd + sum(call.final_usd for call in self.under_way)

    @property
    def open(self) -> int:
        return len(self.under_way)

    def begin(self, call: Call) -> None:
        self.calls.append(call)
        self.under_way.append(call)

    def end(self, call: Call) -> None:
        call.over, call.writer, call.sent = True, None, []
        self.under_way.remove(call)
        self.over_usd += call.billed_usd


class Provider:
    """Speaks OpenAI's chat dialect; honours `max_completion_tokens` and `max_tokens`, reasoning included."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                asked = orjson.loads(await reader.readexactly(int(length.split(b":")[1])))
                await self._answer(asked, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = asked["messages"][-1]["content"]
        text = content if isinstance(content, str) else next(part["text"] for part in content if "text" in part)
        script = orjson.loads(text)
        if script.get("fail") and script["number"] not in self.meter.failed:
            self.meter.failed.add(script["number"])
            if script["fail"] == "late":
                await asyncio.sleep(script["pace_s"] * 10)
            writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
            return
        model = asked["model"]
        own = [asked[name] for name in ("max_completion_tokens", "max_tokens") if asked.get(name)]
        limit = min(own, default=10**9)
        weak = model == "small" and script.get("weak")
        reasoning = min(script["reasoning"] if model == "thinking" else 0, limit)
        tokens = min(len(DECLINES) if weak else script["tokens"], limit - reasoning)
        call = Call(model, PROMPT_TOKENS + PAGE_TOKENS * script["pages"], reasoning + tokens)
        call.port, call.writer = writer.get_extra_info("peername")[1], writer
        self.meter.begin(call)
        ended_early = reasoning + tokens < limit or not own
        finish = "stop" if ended_early or limit == script.get("max") else "length"
        self.meter.capped += finish == "length"
        try:
            await self._say(reader, writer, asked, call, script, reasoning, tokens, finish, weak=bool(weak))
            self.meter.whole += 1
        finally:
            self.meter.end(call)

    async def _say(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asked: dict[str, Any],
        call: Call,
        script: dict[str, Any],
        reasoning: int,
        tokens: int,
        finish: str,
        *,
        weak: bool,
    ) -> None:
        words = DECLINES if weak else VOCABULARIES[script["number"] % len(VOCABULARIES)]
        frame = {**_FRAME, "model": call.model, **({} if call.model == "small" else _HOSTED)}
        usage = {
            "prompt_tokens": call.input_tokens,
            "completion_tokens": reasoning + tokens,
            "total_tokens": call.input_tokens + reasoning + tokens,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        if not asked.get("stream"):
            call.generated = reasoning + tokens  # it is billed whole, whoever leaves meanwhile
            await asyncio.sleep(call.generated / script["rate"])
            said = _text(words, 0, tokens)
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": finish}
            body = orjson.dumps({**frame, "object": "chat.completion", "choices": [choice], "usage": usage})
            writer.write((HEAD % b"application/json") + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            call.wrote(len(body), call.generated)
            await writer.drain()
            return
        writer.write((HEAD % b"text/event-stream") + b"transfer-encoding: chunked\r\n\r\n")
        call.wrote(_event(writer, frame, choices=[_choice({"role": "assistant", "content": ""})]))
        while call.generated < reasoning:
            await asyncio.sleep(STEP_S)
            call.generated = min(reasoning, call.generated + int(script["rate"] * STEP_S))
            if writer.is_closing() or reader.at_eof():
                raise ConnectionResetError
        first = 0
        while first < tokens:
            size = min(script["per_chunk"], tokens - first)
            call.generated += size
            call.wrote(_event(writer, frame, choices=[_choice({"content": _text(words, first, size)})]), size)
            first += size
            await writer.drain()
            await asyncio.sleep(script["pace_s"])
        call.wrote(_event(writer, frame, choices=[_choice({}, finish)]))
        call.wrote(_event(writer, frame, choices=[], usage=usage) + _chunk(writer, b"data: [DONE]\n\n"))
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _text(words: Sequence[str], first: int, size: int) -> str:
    return "".join(words[number % len(words)] for number in range(first, first + size))


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _event(writer: asyncio.StreamWriter, frame: Mapping[str, Any], **fields: Any) -> int:
    """Bytes written."""
    return _chunk(writer, b"data: " + orjson.dumps({**frame, **fields}) + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> int:
    """Bytes written. Raises ConnectionResetError once the client has hung up."""
    if writer.is_closing():
        raise ConnectionResetError
    framed = b"%x\r\n%b\r\n" % (len(data), data)
    writer.write(framed)
    return len(framed)
