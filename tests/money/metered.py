"""A provider with a meter of its own: it bills what it generated, heard by anybody or not, as hosted providers do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

WORD = "word"
"""With a blank about a token."""


@dataclass
class Script:
    """How every answer is made."""

    tokens: int = 100
    """Of text, where nothing limits the answer."""
    reasoning: int = 0
    """Tokens before the text that nobody sees."""
    per_chunk: int = 1
    pace_s: float = 0.002
    """Between two chunks."""
    reads: tuple[str, ...] = ("max_completion_tokens", "max_tokens")
    """The limits that it knows; the others it passes over."""
    prompt_tokens: int = 20
    page_tokens: int = 0
    """Of input for each file in the request."""
    tier: str = ""
    """That serves, as it is reported, and how many times as dear it is."""
    tier_factor: int = 1


@dataclass
class Metered:
    """Speaks OpenAI's chat dialect on a port of 127.0.0.1. `async with` runs it."""

    port: int
    input_usd: float = 1.0
    output_usd: float = 10.0
    """Per 1M tokens."""
    script: Script = field(default_factory=Script)
    input_tokens: int = 0
    output_tokens: int = 0
    bodies: list[bytes] = field(default_factory=list)

    @property
    def bill_usd(self) -> float:
        """At the factor of the last script."""
        plain = self.input_tokens * self.input_usd + self.output_tokens * self.output_usd
        return plain * self.script.tier_factor / 1e6

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**26, backlog=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(lengths[0].split(b":")[1]))
                self.bodies.append(body)
                await self._answer(orjson.loads(body), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        script = self.script
        files = orjson.dumps(asked).count(b'"type":"file"')
        prompt = script.prompt_tokens + files * script.page_tokens
        self.input_tokens += prompt
        limit = min([asked[name] for name in script.reads if asked.get(name)], default=10**9)
        reasoning = min(script.reasoning, limit)
        text = min(script.tokens, limit - reasoning)
        finish = "stop" if text == script.tokens else "length"
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": reasoning + text,
            "total_tokens": prompt + reasoning + text,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        if asked.get("stream"):
            await self._stream(writer, reasoning, text, finish, usage)
            return
        self.output_tokens += reasoning + text
        message = {"role": "assistant", "content": f"{WORD} " * text}
        choices = [{"index": 0, "message": message, "finish_reason": finish}]
        shape = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", **self._tier()}
        body = orjson.dumps({**shape, "choices": choices, "usage": usage})
        await asyncio.sleep(script.pace_s)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        await writer.drain()

    async def _stream(
        self, writer: asyncio.StreamWriter, reasoning: int, text: int, finish: str, usage: dict[str, Any]
    ) -> None:
        script = self.script
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        self._event(writer, choices=[_choice({"role": "assistant", "content": ""})])
        self.output_tokens += reasoning
        if reasoning:
            await asyncio.sleep(script.pace_s * 10)
        while text > 0:
            said = min(script.per_chunk, text)
            text -= said
            self.output_tokens += said
            self._event(writer, choices=[_choice({"content": f"{WORD} " * said})])
            await writer.drain()
            await asyncio.sleep(script.pace_s)
        self._event(writer, choices=[_choice({}, finish)])
        self._event(writer, choices=[], usage=usage)
        self._chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _tier(self) -> dict[str, str]:
        return {"service_tier": self.script.tier} if self.script.tier else {}

    def _event(self, writer: asyncio.StreamWriter, **fields: Any) -> None:
        shape = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **self._tier()}
        self._chunk(writer, b"data: " + orjson.dumps({**shape, **fields}) + b"\n\n")

    def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish}
