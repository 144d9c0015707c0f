"""CPU per request of the HTTP client against the least that httptools allows, in interleaved rounds.

`python -m loadtests.http_client` starts the scripted provider as a process of its own (on another core, where there
is one) and asks it with: a bare protocol on httptools (no pool, no deadlines, no back-pressure), our client, aiohttp.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httptools
import uvloop

from gateway.backends.http.client import connect

Ask = Callable[[bytes], Awaitable[int]]
HEADERS = [(b"content-type", b"application/json"), (b"authorization", b"Bearer sk-0123456789")]


def question(tokens: int, stream: bool) -> bytes:
    tail = b', "stream": true' if stream else b""
    return b'{"model": "m", "messages": [{"role": "user", "content": "[[reply tokens=%d]]"}]%b}' % (tokens, tail)


class Bare(asyncio.Protocol):
    """One connection, one request at a time, nothing but bytes in and bytes out."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append
        self.done: asyncio.Future[None] | None = None
        self.parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self.done:
            self.done.set_result(None)

    async def ask(self, request: bytes) -> int:
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self.done
        size = sum(map(len, self.pieces))
        self.pieces.clear()
        return size


async def bare(url: str, concurrent: int) -> tuple[list[Ask], Callable[[], Awaitable[None]]]:
    port = int(url.partition("127.0.0.1:")[2].partition("/")[0])
    loop = asyncio.get_running_loop()
    made = [(await loop.create_connection(Bare, "127.0.0.1", port))[1] for _ in range(concurrent)]
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += b"authorization: Bearer sk-0123456789\r\naccept-encoding: identity\r\ncontent-length: %d\r\n\r\n"

    def asking(protocol: Bare) -> Ask:
        return lambda body: protocol.ask(head % len(body) + body)

    async def close() -> None:
        for protocol in made:
            protocol.transport.abort()
        await asyncio.sleep(0.01)

    return [asking(protocol) for protocol in made], close


async def pooled(url: str, concurrent: int, aiohttp: bool) -> tuple[list[Ask], Callable[[], Awaitable[None]]]:
    client = connect(url, concurrent=concurrent, name="small", aiohttp=aiohttp)
    loop = asyncio.get_running_loop()

    async def ask(body: bytes) -> int:
        deadline = loop.time() + 60
        response = await client.request(
            "POST", "/chat/completions", HEADERS, body, deadline=deadline, first_byte_timeout=30
        )
        size = 0
        async for piece in response:
            size += len(piece)
        await response.aclose()
        return size

    return [ask] * concurrent, client.aclose


async def measure(asks: list[Ask], body: bytes, requests: int) -> float:
    """Microseconds of CPU per request."""
    each = requests // len(asks)

    async def run(ask: Ask) -> None:
        for _ in range(each):
            await ask(body)

    started = time.process_time()
    await asyncio.gather(*[run(ask) for ask in asks])
    return (time.process_time() - started) / (each * len(asks)) * 1e6


async def main(rounds: int, requests: int, concurrent: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    provider = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.provider", stdout=asyncio.subprocess.PIPE
    )
    assert provider.stdout
    url = (await provider.stdout.readline()).decode().strip()
    if len(cores) > 1:
        os.sched_setaffinity(provider.pid, cores[1:])
        os.sched_setaffinity(0, cores[:1])
    kinds: dict[str, tuple[list[Ask], Callable[[], Awaitable[None]]]] = {
        "httptools alone": await bare(url, concurrent),
        "ours": await pooled(url, concurrent, aiohttp=False),
        "aiohttp": await pooled(url, concurrent, aiohttp=True),
    }
    for name, body in {
        "plain, 1 KB": question(130, False),
        "plain, 32 KB": question(6000, False),
        "stream, 100 chunks at once": question(100, True),
    }.items():
        seen: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, (asks, _close) in kinds.items():
                seen[kind].append(await measure(asks, body, requests))
        base = statistics.median(seen["httptools alone"])
        for kind, times in seen.items():
            median = statistics.median(times)
            print(f"{name:28} {kind:16} {median:8.1f} µs  {median / base:5.2f} ×  (+{median - base:.1f} µs)")
    for _, close in kinds.values():
        await close()
    provider.terminate()
    await provider.wait()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--requests", type=int, default=2000)
    options.add_argument("--concurrent", type=int, default=16)
    given = options.parse_args()
    uvloop.run(main(given.rounds, given.requests, given.concurrent))
