"""`python -m loadtests stalls`: how long one team's worst legal bodies keep another team's small request waiting.

A gateway with one worker and everything on (grader, semantic cache, trimming) runs on one core, the load on another.
While a body is posted and answered, another team asks the same small question over and over; the answer comes from the
cache, so that what it waits for is the worker's event loop. The longest wait is the stall. Of several rounds the
smallest counts: other processes of the machine can only add to it. Exit status 1 when one is above `--most-ms`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from gateway.settings.gateway import RequestLimits
from loadtests.processes import Cores
from loadtests.stall_bodies import CHAT, Body, Extent, bodies
from loadtests.targets import Target, running_gateway

GATEWAY = """\
telemetry: {{access_log: false}}
trials: {{cache_checks: 0}}
local_model: {{enabled: false}}
backends:
  - &backend
    name: loadtest
    kind: openai
    base_url: http://127.0.0.1:{upstream}/v1
    model: loadtest
    tier: large
    window_tokens: 1000000000
    capabilities: [tools, vision, json_schema, reasoning, logprobs]
    price: {{input: 2.5, output: 10}}
  - {{<<: *backend, name: small, tier: small}}
  - {{<<: *backend, name: narrow, window_tokens: 16000}}
"""
POLICY = """\
team: {team}
models: {{auto: {{candidates: [small, loadtest], quality: 95%, reference: loadtest}}}}
cache: {{scope: team, ttl: 1h, semantic: {{enabled: true, max_error: 1%}}}}
"""
MODELS = ("auto", "narrow")
"""Each body is for both: one that is graded and sent on whole, one that is trimmed first."""
PAUSE_S = 0.002
"""Between two small requests."""
LEAST_S = 0.2
"""The small requests go on for so long after the answer: what is put off can stall, too."""
PATIENCE_S = 120.0
SMALL = orjson.dumps({"model": "loadtest", "temperature": 0, "messages": [{"role": "user", "content": "hello"}]})
_USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
_MESSAGE = {"role": "assistant", "content": "Hello."}
_COMPLETION = orjson.dumps(
    {
        "id": "c", "object": "chat.completion", "created": 1, "model": "loadtest", "usage": _USAGE,
        "choices": [{"index": 0, "message": _MESSAGE, "text": "Hello.", "finish_reason": "stop"}],
    }
)  # fmt: skip
_EMBEDDED = orjson.dumps(
    {
        "object": "list", "model": "loadtest", "usage": {"prompt_tokens": 5, "total_tokens": 5},
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}],
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stall:
    """What one body did in one round."""

    name: str
    bytes: int
    status: int
    """Of the answer to the body."""
    stall_ms: float
    took_ms: float


@contextlib.contextmanager
def running_provider() -> Iterator[int]:
    """The port of a provider that answers every request alike; reads a body without keeping it."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                left = _length(head)
                while left:
                    left -= len(await reader.read(min(left, 2**18)) or b" " * left)
                body = _EMBEDDED if b"/embeddings" in head[:40] else _COMPLETION
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    def work() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(run())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    ready.wait(10)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
        thread.join(10)


def _length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"content-length:")
    return int(lower[at + 15 : lower.index(b"\r\n", at)]) if at >= 0 else 0


class Client:
    """Posts on one connection, as one team."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def post(self, path: str, body: bytes) -> int:
        """The status; 0 when the gateway hung up."""
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        try:
            self._connection.request("POST", path, body, headers)
            answer = self._connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, HTTPException):
            self._connection.close()
            return 0


def measure(target: Target, body: Body, at_once: int) -> Stall:
    """One round of one body, posted `at_once` times on as many connections."""
    small = Client(target.port, target.keys["hits"])
    small.post(CHAT, SMALL)
    done: list[tuple[int, float]] = []

    def send() -> None:
        started = time.perf_counter()
        done.append((Client(target.port, target.keys[""]).post(body.path, body.data), time.perf_counter() - started))

    senders = [threading.Thread(target=send) for _ in range(at_once)]
    for sender in senders:
        sender.start()
    worst, until = 0.0, float("inf")
    while (now := time.perf_counter()) < until:
        small.post(CHAT, SMALL)
        worst = max(worst, time.perf_counter() - now)
        if until == float("inf") and len(done) == at_once:
            until = time.perf_counter() + LEAST_S
        time.sleep(PAUSE_S)
    for sender in senders:
        sender.join()
    status, took_s = done[-1]
    return Stall(body.name, len(body.data), status, worst * 1000, took_s * 1000)


def run(extent: Extent, rounds: int, only: str, at_once: int, say: Callable[[str], None]) -> list[Stall]:
    """The least stall of each body; the quiet gateway's comes first."""
    found: list[Stall] = []
    cores = Cores.available()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_provider() as upstream,
        running_gateway(Path(folder) / "gateway", cores, upstream, texts=_files(upstream)) as target,
    ):
        for body in [Body("a small request alone", CHAT, SMALL), *_chosen(extent, only)]:
            each = [measure(target, body, at_once) for _ in range(rounds)]
            found.append(min(each, key=lambda stall: stall.stall_ms))
            say(f"{found[-1].stall_ms:8.1f} ms  {found[-1].status}  {body.name}")
    return found


def _files(upstream: int) -> dict[str, str]:
    policies = {f"policies/{team}.yaml": POLICY.format(team=team) for team in ("load", "hits")}
    return {"gateway.yaml": GATEWAY.format(upstream=upstream), **policies}


def _chosen(extent: Extent, only: str) -> Iterator[Body]:
    """For each of the models in turn."""
    for model in MODELS:
        for body in bodies(replace(extent, model=model)):
            if only in body.name:
                yield replace(body, name=f"{body.name} → {model}")


def _show(found: list[Stall], console: Console) -> None:
    table = Table("body → model", "bytes", "status", "stall ms", "answered in ms")
    for stall in sorted(found, key=lambda each: -each.stall_ms):
        figures = f"{stall.bytes:,}", str(stall.status), f"{stall.stall_ms:.1f}", f"{stall.took_ms:.0f}"
        table.add_row(stall.name, *figures)
    console.print(table)


def main(arguments: list[str]) -> int:
    limits = RequestLimits()
    parser = argparse.ArgumentParser(prog="python -m loadtests stalls", description=__doc__)
    parser.add_argument("--items", type=int, default=limits.max_items, help="objects and arrays of a body")
    parser.add_argument("--bytes", type=int, default=limits.max_body_bytes, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=3, help="of each body; the least stall counts")
    parser.add_argument("--only", default="", help="bodies with this in their name")
    parser.add_argument("--at-once", type=int, default=1, help="times that each body is posted at once")
    parser.add_argument("--most-ms", type=float, default=200.0, help="exit status 1 above it")
    asked = parser.parse_args(arguments)
    extent = Extent(asked.items, asked.bytes, MODELS[0])
    found = run(extent, asked.rounds, asked.only, asked.at_once, lambda text: print(text, flush=True))
    _show(found, Console(width=100))
    return int(max(stall.stall_ms for stall in found) > asked.most_ms)
