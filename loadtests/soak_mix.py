"""The soak's load: an open loop of every kind of request that a day brings, at a moderate rate."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from gateway.runtime.tasks import Tasks
from loadtests.matrix_gateway import BROKEN, DEADLINE_S, MODEL, SHAKY, MatrixGateway
from loadtests.matrix_judge import GRACE_S, RECALLED
from loadtests.matrix_load import understood

_CACHE_OFF = "cache: {enabled: false}\n"
TEAMS: Mapping[str, str] = {
    "plain": _CACHE_OFF + "limits: {requests_per_minute: 1000000, tokens_per_minute: 100000000}",
    "paying": _CACHE_OFF + "budget: {limit_usd: 1000, window: day}",
    "cached": "cache: {enabled: true, semantic: {enabled: false}}",
    "broke": _CACHE_OFF + "budget: {limit_usd: 0.0005, window: day}",
    "slow": _CACHE_OFF + "limits: {requests_per_minute: 30}",
}
KINDS: Mapping[str, int] = {
    "plain": 34, "stream": 24, "hit": 18, "hang-up": 6, "fallback": 5, "failing": 3, "refused": 4, "limited": 3,
    "invalid": 2, "usage": 1,
}  # fmt: skip
"""Kind → parts in a hundred."""
_KNOWN = 500
"""Questions that the cached team asks over and over."""
_STATUSES: Mapping[str, tuple[int, ...]] = {
    "refused": (200, 429), "limited": (200, 429), "invalid": (400,), "failing": (502, 503),
}  # fmt: skip
PATIENCE_S = DEADLINE_S + 6.0


@dataclass(slots=True)
class Tally:
    """What the clients saw."""

    asked: Counter[str] = field(default_factory=Counter)
    """Of each kind."""
    odd: Counter[str] = field(default_factory=Counter)
    """What should not have been, in words."""
    answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Request id → tokens of every whole answer that a backend gave."""
    hits: int = 0
    degraded: int = 0
    longest_s: float = 0.0


class Mix:
    """Ask `rate` times a second until told to stop, whatever the answers do."""

    def __init__(self, gateway: MatrixGateway, rate: float, seed: int) -> None:
        self.gateway, self._rate, self._random = gateway, rate, random.Random(seed)
        self.tally = Tally()
        self._tasks = Tasks()
        self._numbers = 0

    async def run(self, seconds: float) -> None:
        """Returns when all have been answered."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=20)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as self._session:
            polls = self._tasks.spawn(self._poll(), "polls")
            reloads = self._tasks.spawn(self._reload(), "reloads")
            until = time.monotonic() + seconds
            while (now := time.monotonic()) < until:
                kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
                self._tasks.spawn(self._one(kind), kind)
                await asyncio.sleep(max(0.0, now + self._random.expovariate(self._rate) - time.monotonic()))
            polls.cancel()
            reloads.cancel()
            await self._tasks.drain(PATIENCE_S + 2)
            await self._tasks.aclose()

    async def _one(self, kind: str) -> None:
        self._numbers += 1
        self.tally.asked[kind] += 1
        began = time.monotonic()
        try:
            if kind == "usage":
                await self._get("/v1/usage", "admin")
            elif kind == "hang-up":
                await self._hang_up(self._numbers)
            else:
                await self._ask(kind, self._numbers)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            self.tally.odd[f"{kind}: {type(error).__name__}"] += 1
        took = time.monotonic() - began
        self.tally.longest_s = max(self.tally.longest_s, took)
        if took > DEADLINE_S + GRACE_S:
            self.tally.odd[f"{kind}: took {took:.0f} s"] += 1

    async def _ask(self, kind: str, number: int) -> None:
        team, body = self._request(kind, number)
        async with self._post(team, body) as reply:
            text = await reply.read()
        code, tokens = understood(reply.status, text, bool(body.get("stream")))
        self.tally.degraded += "x-thriftgate-degraded" in reply.headers
        if reply.status not in _STATUSES.get(kind, (200,)) or (reply.status == 200 and code):
            self.tally.odd[f"{kind}: {reply.status} {code}"] += 1
        elif reply.status == 200 and reply.headers.get("x-thriftgate-cache") in RECALLED:
            self.tally.hits += 1
        elif reply.status == 200:
            self.tally.answers[reply.headers["x-request-id"]] = tokens

    def _request(self, kind: str, number: int) -> tuple[str, dict[str, Any]]:
        team = {"hit": "cached", "refused": "broke", "limited": "slow"}.get(kind, "paying" if number % 2 else "plain")
        text = f"Please tell me about number {number}"
        if kind == "hit":
            text = f"Which colour has the gateway with number {self._random.randrange(_KNOWN)}?"
        model = {"fallback": SHAKY, "failing": BROKEN}.get(kind, MODEL)
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0}
        if kind == "invalid":
            body["messages"] = "none"
        if kind == "stream":
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return team, body

    async def _hang_up(self, number: int) -> None:
        """Before the answer, or in the midst of it."""
        team = "paying" if number % 2 else "plain"
        text = f"[[reply tokens=200 drip_s=0.01]] {number}"
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": True}
        async with self._post(team, body) as reply:
            if number % 3:
                await reply.content.readany()
                await asyncio.sleep(self._random.random() * 0.5)
            reply.close()

    def _post(self, team: str, body: Mapping[str, Any]) -> Any:
        headers = {"authorization": f"Bearer {self.gateway.keys[team]}"}
        return self._session.post(f"{self.gateway.base}/v1/chat/completions", json=body, headers=headers)

    async def _get(self, path: str, who: str) -> bytes:
        headers = {"authorization": f"Bearer {self.gateway.keys[who]}"}
        async with self._session.get(self.gateway.base + path, headers=headers) as reply:
            if reply.status != 200:
                self.tally.odd[f"{path}: {reply.status}"] += 1
            return await reply.read()

    async def _poll(self) -> None:
        """As Prometheus, a load balancer and a page that somebody left open."""
        while True:
            for path in ("/metrics", "/health", "/dashboard"):
                try:
                    await self._get(path, "admin")
                except (TimeoutError, aiohttp.ClientError, OSError) as error:
                    self.tally.odd[f"{path}: {type(error).__name__}"] += 1
            await asyncio.sleep(5)

    async def _reload(self) -> None:
        """A policy changes, now and then for the worse: then the old set stays."""
        for turn in range(10**9):
            await asyncio.sleep(15)
            broken = "\nbugdet: {}" if turn % 4 == 3 else ""
            self.gateway.write_policy("slow", TEAMS["slow"].replace("30", str(30 + turn % 2)) + broken)
