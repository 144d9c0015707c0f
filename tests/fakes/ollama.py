"""Ollama on this machine: `/api/chat` as lines of JSON, `/api/embed`, `/api/tags`, and errors as Ollama writes them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from tests.fakes.scripted import Body, Refuse, Scripted

MODEL = "llama3.2:3b"
COUNTS = {"prompt_eval_count": 14, "eval_count": 4}
DURATIONS = {"total_duration": 5_000, "load_duration": 1_000, "prompt_eval_duration": 2_000, "eval_duration": 2_000}


@dataclass
class Asked:
    path: str
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class Ollama(Scripted):
    """Answers `Hello from Ollama`. A prompt of more than `window` bytes is refused, unless the request lets the server
    cut it."""

    notices_hang_ups = True

    key: str = ""
    models: tuple[str, ...] = (MODEL,)
    window: int = 2**20
    asked: list[Asked] = field(default_factory=list)
    hung_up: int = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/tags", self._tags), web.post("/{path:.*}", self._answer)]

    async def _tags(self, request: web.Request) -> web.Response:
        listed = [{"name": name, "model": name, "size": 1, "details": {}} for name in self.models]
        return web.json_response({"models": listed})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = orjson.loads(raw)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(Asked(request.path, body, headers))
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "unauthorized"}, status=401)
        step = self.next_step()
        if isinstance(step, Refuse):
            return web.json_response(step.body, status=step.status)
        if isinstance(step, Body):
            return web.json_response(step.value)
        if body["model"] != MODEL:
            return web.json_response({"error": f"model '{body['model']}' not found"}, status=404)
        if len(raw) > self.window and body.get("truncate") is False:
            return web.json_response({"error": "the input length exceeds the context length"}, status=400)
        if request.path == "/api/embed":
            return web.json_response(embedded(body["input"]))
        if request.path == "/v1/completions":
            return web.json_response(COMPLETED)
        if body.get("stream") is False:
            return web.json_response(whole("Hello from Ollama"))
        try:
            return await self.stream(request, "application/x-ndjson", step, STREAM)
        except (asyncio.CancelledError, ConnectionError):
            self.hung_up += 1
            raise


def line(value: Any) -> bytes:
    return orjson.dumps(value) + b"\n"


def said(content: str = "", **message: Any) -> dict[str, Any]:
    """A line in the middle of a stream."""
    spoken = {"role": "assistant", "content": content, **message}
    return {"model": MODEL, "created_at": "2026-11-25T01:02:03.456789Z", "message": spoken, "done": False}


def done(reason: str = "stop", **more: Any) -> dict[str, Any]:
    """The last line of a stream."""
    return {**said(), "done": True, "done_reason": reason, **DURATIONS, **COUNTS, **more}


def whole(content: str, reason: str = "stop", **message: Any) -> dict[str, Any]:
    """An answer that is not streamed."""
    return {**done(reason), "message": {"role": "assistant", "content": content, **message}}


def call(name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A call as Ollama writes it: without id, with an object as its arguments."""
    return {"function": {"name": name, "arguments": arguments}, **more}


def embedded(given: str | list[str]) -> dict[str, Any]:
    texts = [given] if isinstance(given, str) else given
    vectors = [[float(len(text)), 0.5] for text in texts]
    return {"model": MODEL, "embeddings": vectors, "total_duration": 1, "load_duration": 1, "prompt_eval_count": 3}


STREAM = tuple(line(each) for each in (said("Hello"), said(" from"), said(" Ollama"), done()))
COMPLETED = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": MODEL,
    "choices": [{"index": 0, "text": "Hello from Ollama", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 14, "completion_tokens": 4, "total_tokens": 18},
}
