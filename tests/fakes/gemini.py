"""A tiny provider that speaks Gemini's wire, which the gateway does not: for what goes through litellm."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp import web

from tests.support.http_server import HttpServer

USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}


class Gemini(HttpServer):
    """Answers `Hello from Gemini`; a prompt of `fail 429` fails so, `drip` streams on and on, `slow` waits."""

    notices_hang_ups = True

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.hung_up = False

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/{path:.*}", self._answer)]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        text = body["contents"][-1]["parts"][0]["text"]
        if text.startswith("fail "):
            return _failure(int(text[5:]))
        try:
            if text == "slow":
                await asyncio.sleep(10)
            if "stream" not in request.path:
                return web.json_response(_part("Hello from Gemini", finishReason="STOP"))
            return await self._stream(request, text)
        except (asyncio.CancelledError, ConnectionError):
            self.hung_up = True
            raise

    async def _stream(self, request: web.Request, text: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for word in ("Hello", " from", *(" and" for _ in range(500 if text == "drip" else 0))):
            await response.write(_event(_part(word)))
            await asyncio.sleep(0.01)
        await response.write(_event(_part(" Gemini", finishReason="STOP")))
        return response


def _part(text: str, **more: str) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **more}
    said = {"candidates": [candidate], "modelVersion": "gemini-2.5-flash", "responseId": "r1"}
    return {**said, "usageMetadata": USAGE} if more else said


def _event(said: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(said) + b"\r\n\r\n"


def _failure(status: int) -> web.Response:
    if status == 503:
        return web.Response(status=status, text="<html>nobody at home</html>", content_type="text/html")
    error = {"code": status, "message": f"scripted {status}", "status": "SCRIPTED"}
    return web.json_response({"error": error}, status=status)
