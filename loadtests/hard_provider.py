"""A provider with a meter of its own, for hard budgets: it bills what it generated, heard by anybody or not.

What it shall do stands in each question, as JSON, so that provider and clients know the true cost of every answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson

PRICES = {"plain": (1.0, 10.0), "thinking": (1.0, 10.0), "small": (0.1, 1.0)}
"""Model → USD per 1M tokens of input and of output."""
PAGE_TOKENS = 2000
PROMPT_TOKENS = 60
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
    capped: int = 0
    """Answers that ended at a limit which the client had not set."""
    whole: int = 0
    failed: set[int] = field(default_factory=set)
    """Questions that have met their scripted failure."""

    @property
    def bill_usd(self) -> float:
        return sum(call.billed_usd for call in self.calls)

    @property
    def final_usd(self) -> float:
        return sum(call.final_usd for call in self.calls)

    @property
    def open(self) -> int:
        return sum(not call.over for call in self.calls)


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
                await self._answer(asked, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        content = asked["messages"][-1]["content"]
        text = content if isinstance(content, str) else next(part["text"] for part in content if "text" in part)
        script = orjson.loads(text)
        if script.get("fail") and script["number"] not in self.meter.failed:
            self.meter.failed.add(script["number"])
            writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
            return
        model = asked["model"]
        own = [asked[name] for name in ("max_completion_tokens", "max_tokens") if asked.get(name)]
        limit = min(own, default=10**9)
        weak = model == "small" and script.get("weak")
        reasoning = min(script["reasoning"] if model == "thinking" else 0, limit)
        tokens = min(8 if weak else script["tokens"], limit - reasoning)
        call = Call(model, PROMPT_TOKENS + PAGE_TOKENS * script["pages"], reasoning + tokens)
        self.meter.calls.append(call)
        ended_early = reasoning + tokens < limit or not own
        finish = "stop" if ended_early or limit == script.get("max") else "length"
        self.meter.capped += finish == "length"
        try:
            await self._say(writer, asked, call, script, reasoning, tokens, finish, weak=bool(weak))
            self.meter.whole += 1
        finally:
            call.over = True

    async def _say(
        self,
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
        word = "sorry " if weak else "word "
        usage = {
            "prompt_tokens": call.input_tokens,
            "completion_tokens": reasoning + tokens,
            "total_tokens": call.input_tokens + reasoning + tokens,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        if not asked.get("stream"):
            call.generated = reasoning + tokens
            await asyncio.sleep(script["pace_s"] * 10)
            said = "I'm sorry, but I can't help with that." if weak else word * tokens
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": finish}
            body = orjson.dumps({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage})
            writer.write((HEAD % b"application/json") + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
            return
        writer.write((HEAD % b"text/event-stream") + b"transfer-encoding: chunked\r\n\r\n")
        _event(writer, choices=[_choice({"role": "assistant", "content": ""})])
        steps = 10
        for step in range(steps if reasoning else 0):
            call.generated = reasoning * (step + 1) // steps
            await asyncio.sleep(script["pace_s"] * 5)
            if writer.is_closing():
                raise ConnectionResetError
        while tokens > 0:
            size = min(script["per_chunk"], tokens)
            tokens -= size
            call.generated += size
            _event(writer, choices=[_choice({"content": word * size})])
            await writer.drain()
            await asyncio.sleep(script["pace_s"])
        _event(writer, choices=[_choice({}, finish)])
        _event(writer, choices=[], usage=usage)
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def _event(writer: asyncio.StreamWriter, **fields: Any) -> None:
    _chunk(writer, b"data: " + orjson.dumps({"id": "c", "object": "chat.completion.chunk", **fields}) + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Raises ConnectionResetError once the client has hung up."""
    if writer.is_closing():
        raise ConnectionResetError
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
