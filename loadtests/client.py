"""The load: a closed loop of raw connections that checks every answer, in a process of its own.

`python -m loadtests.client` reads one JSON command a line and prints one JSON line each: `open` (a Load), `run` (a
Run), `close`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from dataclasses import asdict, dataclass, field
from typing import Any

import httptools
import orjson
import uvloop

from gateway.runtime.tasks import Tasks
from loadtests.agent_answers import PATHS, fault_in_answer
from loadtests.questions import STAMP, Asked, Questions, Shape, fault_in_plain, fault_in_stream, tokens_of
from loadtests.sessions import Sessions

PATIENCE_S = 60.0
"""A run without an answer for so long is given up."""


@dataclass(frozen=True, slots=True)
class Load:
    """Where to ask, what, and how many at a time."""

    host: str
    port: int
    key: str
    model: str
    concurrency: int
    shape: Shape = field(default_factory=Shape)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """How much of it: question `first`, `first + 1`, …; with `distinct` so many over and over, from the `skip`th on."""

    first: int
    most: int
    distinct: int = 0
    skip: int = 0
    seconds: float = 60.0


@dataclass(slots=True)
class Outcome:
    """What came back. Latencies in milliseconds, per request; transit per chunk."""

    right: int = 0
    wrong: int = 0
    lost: int = 0
    degraded: dict[str, int] = field(default_factory=dict)
    """Part of the gateway that was down → answers that said so."""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    latency_ms: dict[str, float] = field(default_factory=dict)
    transit_ms: dict[str, float] = field(default_factory=dict)

    @property
    def answers(self) -> int:
        """However they were."""
        return self.right + self.wrong + self.lost


def spread_ms(nanoseconds: array[int]) -> dict[str, float]:
    """Percentiles in milliseconds; empty without values."""
    if not nanoseconds:
        return {}
    ordered, last = sorted(nanoseconds), len(nanoseconds) - 1
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    found = {name: ordered[round(share * last)] / 1e6 for name, share in at.items()}
    return {**found, "mean": sum(ordered) / len(ordered) / 1e6}


class Session:
    """One load with its open connections; runs come one after the other."""

    def __init__(self, load: Load) -> None:
        self.load = load
        asked = Sessions if load.shape.turns else Questions
        self.questions: Asked = asked(load.shape, load.model)
        more = "".join(f"{name}: {value}\r\n" for name, value in load.headers.items())
        self.head = (
            f"POST {PATHS[load.shape.dialect]} HTTP/1.1\r\nhost: {load.host}:{load.port}\r\nuser-agent: loadtest\r\n"
            f"content-type: application/json\r\nauthorization: Bearer {load.key}\r\n{more}content-length: "
        ).encode()
        self.connections: list[Connection] = []
        self.stopping = False
        self._tasks = Tasks()

    async def open(self) -> None:
        for _ in range(self.load.concurrency):
            self.connections.append(await self._connect())

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: Connection(self), self.load.host, self.load.port)
        return protocol

    async def run(self, run: Run) -> Outcome:
        self.asked, self.plan, self.stopping = 0, run, False
        self.outcome = Outcome()
        self.latency, self.transit = array("q"), array("q")
        self.done = asyncio.get_running_loop().create_future()
        self.connections = [each if each.alive else await self._connect() for each in self.connections]
        self.busy = len(self.connections)
        started = time.monotonic()
        self.until = started + run.seconds
        for connection in self.connections:
            connection.ask()
        await self._watched()
        self.outcome.seconds = time.monotonic() - started
        self.outcome.latency_ms, self.outcome.transit_ms = spread_ms(self.latency), spread_ms(self.transit)
        return self.outcome

    async def _watched(self) -> None:
        """Until every connection has come to rest, or nothing comes any more."""
        seen = -1
        while not self.done.done():
            finished, _ = await asyncio.wait([self.done], timeout=PATIENCE_S)
            now = self.outcome.answers
            if not finished and now == seen:
                self.stopping = True
                for connection in self.connections:
                    connection.give_up("no answer in time")
            seen = now

    def next_number(self) -> int | None:
        """None: the run is over."""
        plan = self.plan
        if self.stopping or self.asked >= plan.most or time.monotonic() > self.until:
            return None
        number = plan.first + ((plan.skip + self.asked) % plan.distinct if plan.distinct else self.asked)
        self.asked += 1
        return number

    def replace(self, old: Connection) -> None:
        """A server that ends a connection after an answer may: the next question goes over a new one."""
        self._tasks.spawn(self._replaced(old), "reconnect")

    async def _replaced(self, old: Connection) -> None:
        try:
            new = await self._connect()
        except OSError as error:
            self.fault(f"no new connection: {error}", lost=True)
            self.rest()
            return
        self.connections[self.connections.index(old)] = new
        new.ask()

    def rest(self) -> None:
        self.busy -= 1
        if not self.busy and not self.done.done():
            self.done.set_result(None)

    def fault(self, text: str, *, lost: bool = False) -> None:
        if lost:
            self.outcome.lost += 1
        else:
            self.outcome.wrong += 1
        if len(self.outcome.faults) < 5:
            self.outcome.faults.append(text)

    def close(self) -> None:
        for connection in self.connections:
            connection.transport.abort()


class Connection(asyncio.Protocol):
    """One request at a time; the next as soon as the answer has been checked."""

    def __init__(self, session: Session) -> None:
        self.session, self.shape = session, session.load.shape
        self.paced = self.shape.kind == "paced"
        self.pieces: list[bytes] = []
        self.number: int | None = None
        self.alive = True
        self.degraded = ""
        self.on_body = self._timed if self.paced else self.pieces.append
        self.parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self) -> None:
        session = self.session
        self.number = number = session.next_number()
        if number is None:
            session.rest()
            return
        body = session.questions.body(number)
        self.asked_at = time.perf_counter_ns()
        self.transport.write(b"%b%d\r\n\r\n%b" % (session.head, len(body), body))

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.give_up(f"not HTTP: {error}")

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"x-thriftgate-degraded":
            self.degraded = value.decode()

    def _timed(self, piece: bytes) -> None:
        now = time.monotonic_ns()
        for stamp in STAMP.findall(piece):
            self.session.transit.append(now - int(stamp))
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        session, number = self.session, self.number
        if number is None:
            session.fault("an answer that nobody asked for")
            return
        session.latency.append(time.perf_counter_ns() - self.asked_at)
        body = b"".join(self.pieces)
        self.pieces.clear()
        self._judge(number, body)
        if self.parser.should_keep_alive():
            self.ask()
        else:
            self.alive, self.number = False, None
            self.transport.close()
            session.replace(self)

    def _judge(self, number: int, body: bytes) -> None:
        session, shape = self.session, self.shape
        status = self.parser.get_status_code()
        if status != 200:
            fault = f"status {status}: {body[:200]!r}"
        elif shape.kind == "plain":
            fault = fault_in_plain(body, number, shape.base_tokens)
        elif shape.kind == "calls":
            fault = fault_in_answer(shape.dialect, body, number, shape.base_tokens, shape.chunks)
        else:
            fault = fault_in_stream(body, number, shape.base_tokens, shape.chunks)
        if fault:
            session.fault(fault)
            return
        told, outcome = tokens_of(number, shape.base_tokens), session.outcome
        outcome.right += 1
        outcome.input_tokens += told.input
        outcome.output_tokens += told.output
        if self.degraded:
            outcome.degraded[self.degraded] = outcome.degraded.get(self.degraded, 0) + 1
            self.degraded = ""

    def give_up(self, why: str) -> None:
        """The connection is of no more use; what was asked on it is lost."""
        if self.alive:
            self.alive = False
            self.transport.abort()
            if self.number is not None:
                self.session.fault(why, lost=True)
                self.session.rest()

    def connection_lost(self, error: Exception | None) -> None:
        self.give_up(f"connection lost: {error}")


class Desk:
    """Takes commands from standard input, a line each."""

    def __init__(self) -> None:
        self._session: Session | None = None

    async def serve(self) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            await self._obey(orjson.loads(line))

    async def _obey(self, command: dict[str, Any]) -> None:
        match command.pop("do"):
            case "open":
                shape = Shape(**command.pop("shape"))
                self._session = Session(Load(**command, shape=shape))
                await self._session.open()
                self._say({"open": len(self._session.connections)})
            case "run" if self._session:
                self._say(asdict(await self._session.run(Run(**command))))
            case "close" if self._session:
                self._session.close()
                self._say({"closed": True})

    @staticmethod
    def _say(value: dict[str, Any]) -> None:
        print(orjson.dumps(value).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(Desk().serve())
