"""A provider that limits the requests of each key, reports what is left, and answers 429 beyond."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.http_server import HttpServer

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "pooled",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


@dataclass
class Limited(HttpServer):
    """Each key has a bucket of `most` requests, or of its own number, which is full again after `window_s`."""

    most: int = 20
    own: dict[str, int] = field(default_factory=dict)
    """Key → its own number."""
    window_s: float = 1.0
    takes_s: float = 0.05
    reports: bool = True
    pauses: bool = True
    """Whether a 429 has a `retry-after`."""
    served: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/chat/completions", self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        await request.read()
        key, now = request.headers["authorization"].removeprefix("Bearer "), time.monotonic()
        most = self.own.get(key, self.most)
        left, at = self._buckets.get(key, (float(most), now))
        left = min(most, left + (now - at) * most / self.window_s)
        admitted = left >= 1
        self._buckets[key] = (left - admitted, now)
        left = self._buckets[key][0]
        reset_s = (most - left) * self.window_s / most
        headers = {
            "x-ratelimit-limit-requests": str(most),
            "x-ratelimit-remaining-requests": str(int(left)),
            "x-ratelimit-reset-requests": f"{int(reset_s * 1000)}ms",
        }
        headers = headers if self.reports else {}
        if not admitted:
            self.refused[key] += 1
            if self.pauses:
                headers["retry-after"] = str(max(1, round(reset_s)))
            return web.json_response({"error": {"message": "Rate limit reached"}}, status=429, headers=headers)
        self.served[key] += 1
        await asyncio.sleep(self.takes_s)
        return web.json_response(ANSWER, headers=headers)
