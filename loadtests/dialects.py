"""CPU of the worker per request: each client dialect over each backend dialect, divided by pass-through.

`python -m loadtests dialects` starts a gateway with one worker and a provider of five dialects, and has the worker
answer every cell in turns, in a new order each round. A cell is a client, a backend and the shape of the answer. The
divisor is the cell of the same shape whose client and backend speak the client's dialect. Nothing is passed through for
Gemini's, Converse's and Ollama's clients: their divisor is chat over chat. Exit status: 1 when the median of a cell is
above `--most`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httptools
import orjson
import uvloop

from loadtests.dialect_upstream import BACKENDS, CHUNKS, SAID, SHAPES, words
from loadtests.processes import Cores
from loadtests.targets import running_gateway, running_upstream

CLIENTS = (*BACKENDS, "ollama")
PASSED = ("chat", "messages", "responses")
"""Clients whose bytes are passed on to a backend of the same dialect."""
CONCURRENT = 8
WARM_UP = 40
PATIENCE_S = 60.0
_SHARES = {"small": 1.0, "32k": 0.5, "burst": 0.4, "paced": 0.2}
"""Shape → its requests in a round, as a share of `--requests`."""
_PROMPT = "Consider the following text about rivers and mountains. " * 10
_HEADERS = (
    "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    "authorization: Bearer {key}\r\ncontent-length: {size}\r\n\r\n"
)
_GATEWAY = """\
telemetry: {access_log: false}
trials: {cache_checks: 0}
local_model: {enabled: false}
backends:
"""
_BACKEND = """\
  - name: {name}
    kind: {kind}
    base_url: http://127.0.0.1:{port}/{path}
    model: m
    tier: large
    region: eu-central-1
    api_key: file:{folder}/secret
    concurrent: 1024
    context_window: 400000
    max_output_tokens: 4096
    price: {{input: 2.5, output: 10}}
"""
_KINDS = {
    "chat": ("openai", "chat/v1", "    dialects: [openai_chat]\n"),
    "messages": ("anthropic", "messages", ""),
    "responses": ("openai", "responses/v1", "    dialects: [openai_responses]\n"),
    "gemini": ("gemini", "gemini/v1beta", ""),
    "converse": ("bedrock", "converse", ""),
}
"""Backend → kind, path of the base URL, further settings."""
_POLICY = """\
team: {team}
cache: {{enabled: false}}
context: {{enabled: false}}
budget: {{limit_usd: 1000000, window: month}}
limits: {{requests_per_minute: 6000000, tokens_per_minute: 6000000000, concurrent: 1024}}
"""


class Cell(NamedTuple):
    """One client dialect over one backend dialect, and the shape of the answer."""

    client: str
    backend: str
    shape: str

    @property
    def divisor(self) -> Cell:
        """The cell by which this one is divided."""
        own = self.client if self.client in PASSED else "chat"
        return Cell(own, own, self.shape)


@dataclass(frozen=True, slots=True)
class Result:
    """Of one cell: microseconds of CPU per request in each round, and the ratios to the divisor in the same rounds."""

    cell: Cell
    cpu_us: tuple[float, ...]
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def as_json(self) -> dict[str, Any]:
        return {**self.cell._asdict(), "ratio": self.ratio, "ratios": self.ratios, "cpu_us": self.cpu_us}


def cells(pairs: str, shapes: Sequence[str]) -> list[Cell]:
    """The cells of `pairs`, such as `chat:messages,gemini:*`, without their divisors. Raises ValueError."""
    chosen: dict[Cell, None] = {}
    for pair in pairs.split(","):
        client, _, backend = pair.partition(":")
        if not {client} <= {*CLIENTS, "*"} or not {backend} <= {*BACKENDS, "*"}:
            raise ValueError(
                f"{pair}: a pair is CLIENT:BACKEND, of {', '.join(CLIENTS)} and {', '.join(BACKENDS)}, or *"
            )
        for each in CLIENTS if client == "*" else (client,):
            for other in BACKENDS if backend == "*" else (backend,):
                chosen |= dict.fromkeys(Cell(each, other, shape) for shape in shapes)
    return [cell for cell in chosen if cell != cell.divisor]


def asked(cell: Cell, number: int) -> tuple[str, bytes]:
    """The path and the body of request `number`."""
    text = f"[[{cell.shape} {number}]] {_PROMPT}"
    stream, model = cell.shape in CHUNKS, cell.backend
    turns = [{"role": "user", "content": text}]
    match cell.client:
        case "chat":
            path, body = "/v1/chat/completions", {"model": model, "messages": turns, "stream": stream}
        case "messages":
            path = "/v1/messages"
            body = {"model": model, "max_tokens": 500, "messages": turns, "stream": stream}
        case "responses":
            path, body = "/v1/responses", {"model": model, "input": text, "stream": stream, "store": False}
        case "gemini":
            method = "streamGenerateContent?alt=sse" if stream else "generateContent"
            path, body = f"/v1beta/models/{model}:{method}", {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        case "converse":
            path = f"/model/{model}/converse{'-stream' if stream else ''}"
            body = {"messages": [{"role": "user", "content": [{"text": text}]}]}
        case _:
            path, body = "/api/chat", {"model": model, "messages": turns, "stream": stream}
    return path, orjson.dumps(body)


class Connection(asyncio.Protocol):
    """One connection to the gateway; one request at a time."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._done.set_result((self._parser.get_status_code(), b"".join(self._pieces)))
        self._pieces.clear()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError("the gateway closed the connection"))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the whole body of the answer."""
        self._done: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        async with asyncio.timeout(PATIENCE_S):
            return await self._done


class Bench:
    """Asks one gateway, and reads the CPU time of its only worker."""

    def __init__(self, port: int, key: str, worker: int) -> None:
        self._port, self._key, self._number = port, key, 0
        self._clock = (~worker << 3) | 2  # the kernel's clock of the process's CPU time, in nanoseconds
        self._connections: list[Connection] = []

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(CONCURRENT):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
            self._connections.append(connection)

    async def cpu_us(self, cell: Cell, requests: int) -> float:
        """Microseconds of CPU per request. Raises RuntimeError with an answer that is wrong."""
        each = -(-requests // CONCURRENT)
        before = time.clock_gettime_ns(self._clock)
        await asyncio.gather(*[self._ask(connection, cell, each) for connection in self._connections])
        await asyncio.sleep(0.01)  # what is done after the last byte of the answers
        return (time.clock_gettime_ns(self._clock) - before) / (each * CONCURRENT) / 1e3

    async def _ask(self, connection: Connection, cell: Cell, times: int) -> None:
        said = words(CHUNKS.get(cell.shape, len(SAID))).count(f" {SAID.decode()}")
        for _ in range(times):
            self._number += 1
            path, body = asked(cell, self._number)
            head = _HEADERS.format(path=path, port=self._port, key=self._key, size=len(body))
            status, answer = await connection.ask(head.encode() + body)
            if status != 200 or answer.count(SAID) < max(1, said):
                raise RuntimeError(f"{cell}: {status} {answer[:500]!r}")

    def close(self) -> None:
        for connection in self._connections:
            connection.transport.abort()


async def _rounds(bench: Bench, wanted: list[Cell], rounds: int, requests: int) -> dict[Cell, list[float]]:
    found: dict[Cell, list[float]] = {cell: [] for cell in wanted}
    await bench.open()
    try:
        for cell in wanted:
            await bench.cpu_us(cell, min(WARM_UP, requests))
        for number in range(1, rounds + 1):
            for cell in random.Random(number).sample(wanted, len(wanted)):
                found[cell].append(await bench.cpu_us(cell, max(1, round(requests * _SHARES[cell.shape]))))
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    finally:
        bench.close()
    return found


def _files(folder: Path, upstream: int) -> dict[str, str]:
    """Path below `folder` → text of the file."""
    backends = [
        _BACKEND.format(name=name, kind=kind, port=upstream, path=path, folder=folder) + more
        for name, (kind, path, more) in _KINDS.items()
    ]
    policies = {f"policies/{team}.yaml": _POLICY.format(team=team) for team in ("load", "hits")}
    return {"gateway.yaml": _GATEWAY + "".join(backends), "secret": "sk-0123456789abcdef", **policies}


@contextmanager
def _gateway() -> Iterator[Bench]:
    cores, folder = Cores.available(), Path(tempfile.mkdtemp(prefix="tg-dialects-"))
    with ExitStack() as exits:
        exits.callback(shutil.rmtree, folder, ignore_errors=True)
        upstream = exits.enter_context(running_upstream(cores, "loadtests.dialect_upstream"))
        gateway = running_gateway(folder, cores, upstream, texts=_files(folder, upstream))
        target = exits.enter_context(gateway)
        yield Bench(target.port, target.keys[""], target.facts()["workers"][0])


def measure(wanted: Sequence[Cell], rounds: int, requests: int) -> list[Result]:
    """Raises RuntimeError when the gateway does not start or an answer is wrong."""
    with _gateway() as bench:
        every = list(dict.fromkeys([*(cell.divisor for cell in wanted), *wanted]))
        found = uvloop.run(_rounds(bench, every, rounds, requests))
    return [
        Result(cell, tuple(found[cell]), tuple(map(float.__truediv__, found[cell], found[cell.divisor])))
        for cell in every
    ]


def table(results: Sequence[Result]) -> Iterator[str]:
    """The lines of the report: a row for each pair, a column for each shape."""
    by_cell = {result.cell: result for result in results}
    shapes = [shape for shape in SHAPES if any(cell.shape == shape for cell in by_cell)]
    yield f"{'client over backend':<24}" + "".join(f"{shape:>22}" for shape in shapes)
    for client, backend in dict.fromkeys((cell.client, cell.backend) for cell in by_cell):
        line = f"{client + ' over ' + backend:<24}"
        for shape in shapes:
            result = by_cell.get(Cell(client, backend, shape))
            cpu = f"{statistics.median(result.cpu_us):.0f} µs = {result.ratio:.2f} ×" if result else "–"
            line += f"{cpu:>22}"
        yield line


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests dialects", description=__doc__)
    parser.add_argument("--pairs", default="*:*", help="CLIENT:BACKEND,…; * stands for all; default *:*")
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"default {','.join(SHAPES)}")
    parser.add_argument("--rounds", type=int, default=5, help="default 5; the median is reported")
    parser.add_argument("--requests", type=int, default=120, help="of a cell and round; streams get fewer; default 120")
    parser.add_argument("--most", type=float, default=2.0, help="the greatest ratio that is accepted; default 2")
    parser.add_argument("--json", type=Path, help="file for the figures of all rounds")
    options = parser.parse_args(list(given))
    shapes = options.shapes.split(",")
    if unknown := set(shapes) - set(SHAPES):
        parser.error(f"no such shape: {', '.join(sorted(unknown))}")
    try:
        wanted = cells(options.pairs, shapes)
    except ValueError as error:
        parser.error(str(error))
    results = measure(wanted, options.rounds, options.requests)
    print("\n".join(table(results)))
    above = [result for result in results if result.ratio > options.most]
    print(f"{len(above)} of {len(results)} cells above {options.most}; the greatest ratio is "
          f"{max(result.ratio for result in results):.2f}")  # fmt: skip
    if options.json:
        options.json.write_bytes(orjson.dumps([each.as_json() for each in results], option=orjson.OPT_INDENT_2))
    return int(bool(above))
