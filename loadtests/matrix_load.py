"""Teams that go on asking, and somebody who looks at health and metrics meanwhile; every answer is kept as a sample."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from gateway.runtime.tasks import Tasks
from loadtests.matrix_gateway import DEADLINE_S, MODEL, MatrixGateway

PATIENCE_S = DEADLINE_S + 6.0
"""After so long a client gives up: the request hangs."""
LOOK_S = 0.4
KNOWN = 5
"""Questions that the cached team repeats."""
_METRIC = re.compile(rb"^(\w+(?:\{[^}]*\})?) ([-+.0-9e]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """One request as its client saw it. Times are seconds since the load began."""

    team: str
    at: float
    took_s: float
    status: int
    """0: no whole answer came."""
    code: str = ""
    """Of the error, or what cut the answer short."""
    degraded: str = ""
    cache: str = ""
    backend: str = ""
    request_id: str = ""
    tokens: tuple[int, int] = (0, 0)
    """Input and output, as the answer says."""

    @property
    def answered(self) -> bool:
        return self.status == 200


@dataclass(frozen=True, slots=True)
class Look:
    """What the gateway said of itself; status 0: it did not answer."""

    at: float
    ready: int
    parts: Mapping[str, Any]
    metrics: Mapping[str, float]


@dataclass
class Load:
    """Runs as a context manager around everything that happens to the gateway."""

    gateway: MatrixGateway
    askers: Mapping[str, int]
    """Team → how many ask at a time."""
    pause_s: float = 0.04
    samples: list[Sample] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._numbers = itertools.count()
        self._stopping = False
        self._tasks = Tasks()
        self._running: list[asyncio.Task[None]] = []

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    async def __aenter__(self) -> Load:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        for team, count in self.askers.items():
            for _ in range(count):
                self._running.append(self._tasks.spawn(self._ask_on(team), f"asking for {team}"))
        self._tasks.spawn(self._look_on(), "looking")
        return self

    async def __aexit__(self, *error: object) -> None:
        """What was asked is answered first."""
        self._stopping = True
        await asyncio.wait(self._running, timeout=PATIENCE_S + 2)
        await self._tasks.aclose()
        await self._session.close()

    async def _ask_on(self, team: str) -> None:
        while not self._stopping:
            self.samples.append(await self._ask(team, next(self._numbers)))
            await asyncio.sleep(self.pause_s)

    async def _ask(self, team: str, number: int) -> Sample:
        stream = number % 3 == 0
        body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": question(team, number)}]}
        body |= {"temperature": 0, "stream": stream, "max_tokens": 100}
        if stream:
            body["stream_options"] = {"include_usage": True}
        at = self.now
        try:
            async with self._session.post(
                f"{self.gateway.base}/v1/chat/completions",
                json=body, headers={"authorization": f"Bearer {self.gateway.keys[team]}"},
            ) as reply:  # fmt: skip
                text = await reply.read()
                return self._sample(team, at, reply, text, stream)
        except TimeoutError:
            return Sample(team, at, self.now - at, 0, "hung")
        except (aiohttp.ClientError, OSError) as error:
            return Sample(team, at, self.now - at, 0, type(error).__name__)

    def _sample(self, team: str, at: float, reply: aiohttp.ClientResponse, text: bytes, stream: bool) -> Sample:
        status, (code, tokens) = reply.status, understood(reply.status, text, stream)
        told = reply.headers
        return Sample(
            team, at, self.now - at, 0 if status == 200 and code else status, code,
            told.get("x-thriftgate-degraded", ""), told.get("x-thriftgate-cache", ""),
            told.get("x-thriftgate-backend", ""), told.get("x-request-id", ""), tokens,
        )  # fmt: skip

    async def _look_on(self) -> None:
        while True:
            self.looks.append(await self.look())
            await asyncio.sleep(LOOK_S)

    async def look(self) -> Look:
        """A new connection for each question, so that all workers are asked in the course of time."""
        at = self.now
        ready = await self._get("/health/ready")
        health = await self._get("/health")
        metrics = await self._get("/metrics")
        parts = orjson.loads(health[1])["parts"] if health[0] == 200 else {}
        figures = {name.decode(): float(value) for name, value in _METRIC.findall(metrics[1])}
        return Look(at, ready[0], parts, figures if metrics[0] == 200 else {})

    async def _get(self, path: str) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {self.gateway.keys['admin']}", "connection": "close"}
        try:
            timeout = aiohttp.ClientTimeout(total=2.0)
            async with self._session.get(self.gateway.base + path, headers=headers, timeout=timeout) as reply:
                return reply.status, await reply.read()
        except (TimeoutError, aiohttp.ClientError, OSError):
            return 0, b""


def question(team: str, number: int) -> str:
    """The cached team asks one of a few every other time; everybody else something new."""
    if team == "cached" and number % 2:
        return f"What is the capital of country number {number // 2 % KNOWN} of the list?"
    return f"Please tell me a story about the traveller with ticket {number} and her dog"


def understood(status: int, text: bytes, stream: bool) -> tuple[str, tuple[int, int]]:
    """(what is wrong with the answer or the error's code, tokens as its usage says)."""
    try:
        if status != 200:
            return str(orjson.loads(text)["error"]["code"]), (0, 0)
        if not stream:
            return "", _tokens(orjson.loads(text)["usage"])
        events = [line[6:] for line in text.split(b"\n") if line.startswith(b"data: ")]
        if not events or events[-1] != b"[DONE]":
            return _error_in(events), (0, 0)
        usage = next(found for event in reversed(events[:-1]) if (found := orjson.loads(event).get("usage")))
        return "", _tokens(usage)
    except (ValueError, KeyError, TypeError, StopIteration):
        return "unreadable", (0, 0)


def _error_in(events: list[bytes]) -> str:
    """The code of the error event that ends a stream; without one it was cut."""
    error = orjson.loads(events[-1]).get("error") if events else None
    return str(error["code"]) if error else "cut"


def _tokens(usage: dict[str, int]) -> tuple[int, int]:
    return usage["prompt_tokens"], usage["completion_tokens"]
