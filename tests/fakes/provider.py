"""A scripted LLM provider on a real socket: speaks OpenAI and Anthropic, fails on demand, remembers everything.

In a test: `async with Provider() as provider:` and `provider.script(Fail(429), Reply(tokens=3))`. As a process:
`python -m tests.fakes.provider --port 9001`, steered by markers in the model name or the last user message
(`[[fail status=500]]`, `[[reply tokens=100 drip_s=0.01]]`).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Self, TextIO

import httptools
import orjson

from tests.fakes import provider_anthropic, provider_completions, provider_openai, provider_responses
from tests.fakes.provider_answer import last_user, speak
from tests.fakes.provider_exchange import Exchange
from tests.fakes.provider_play import (
    Action,
    End,
    Pause,
    Write,
    body_head,
    play_body,
    play_failure,
    play_plain,
    play_raw,
    play_stream,
)
from tests.fakes.provider_rest import SERVED, read
from tests.fakes.provider_script import Fail, Raw, Reply, Step, marked
from tests.support.waiting import until

__all__ = ["Exchange", "Fail", "Provider", "Raw", "Reply"]

_WIRES: dict[str, ModuleType] = {
    "/v1/chat/completions": provider_openai,
    "/v1/completions": provider_completions,
    "/v1/responses": provider_responses,
    "/v1/messages": provider_anthropic,
}


class Provider:
    """The server. Steps come from the script, else from a marker in the request, else from `default`."""

    def __init__(
        self,
        *,
        default: Step | None = None,
        api_key: str | None = None,
        models: tuple[str, ...] = ("scripted-small", "scripted-large"),
        tls: ssl.SSLContext | None = None,
        port: int = 0,
        keep: int | None = None,
        record: TextIO | None = None,
        speaks: Collection[str] | None = None,
    ) -> None:
        """`speaks`: paths such as `/v1/chat/completions`, all others are 404; None: every path there is."""
        self.default = default or Reply()
        self.api_key = api_key
        self.models = models
        self.sizes: Mapping[str, str] = {}
        """Model → size of parameters, as Ollama's /api/tags tells them; empty: it is no Ollama."""
        self.port = port
        self.exchanges: deque[Exchange] = deque(maxlen=keep)
        self.connections = 0
        """Accepted so far."""
        self._tls = tls
        self._record = record
        self._speaks = frozenset(_WIRES.keys() | SERVED.keys() if speaks is None else speaks)
        self._steps: deque[Step] = deque()
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._answers = 0

    @property
    def url(self) -> str:
        """Base URL as it stands in gateway.yaml (`…/v1`)."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    @property
    def last(self) -> Exchange:
        """What was asked last, but for looks at how busy it is."""
        return next(each for each in reversed(self.exchanges) if each.path != "/metrics")

    @property
    def open_connections(self) -> int:
        return len(self._open)

    @property
    def unsent(self) -> int:
        """Bytes that clients have not taken yet."""
        return sum(connection.transport.get_write_buffer_size() for connection in self._open)

    def script(self, *steps: Step) -> None:
        """Queue steps for the next requests, one each."""
        self._steps.extend(steps)

    def forget(self) -> None:
        """What is still queued."""
        self._steps.clear()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.refuse()

    async def listen(self) -> None:
        """Accept connections (again, on the same port)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, ssl=self._tls, reuse_address=True, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Stop listening and drop every connection: from now on connections are refused."""
        if self._server:
            self._server.close()
            self._server = None
        for connection in list(self._open):
            connection.transport.abort()
        await until(lambda: not self._open)

    def drop_idle(self) -> None:
        """Close the connections that wait for a request, as a keep-alive timeout does."""
        for connection in list(self._open):
            if connection.current is None:
                connection.transport.close()

    async def settled(self) -> None:
        """Wait until every exchange has ended, one way or the other."""
        await until(lambda: all(exchange.settled for exchange in self.exchanges))

    def answer(self, exchange: Exchange) -> Iterator[Action]:
        """What to send for `exchange`."""
        self.exchanges.append(exchange)
        path = exchange.path.partition("?")[0]
        wire = _WIRES.get(path, provider_openai)
        if self.api_key is not None and self._key(exchange) != self.api_key:
            return self._refuse(exchange, wire, Fail(401, "Incorrect API key provided."))
        if path == "/v1/models" and exchange.method == "GET":
            return self._tell(exchange, 200, provider_openai.models(self.models))
        if path == "/api/tags" and self.sizes:
            tags = [{"name": name, "details": {"parameter_size": size}} for name, size in self.sizes.items()]
            return self._tell(exchange, 200, orjson.dumps({"models": tags}))
        if path not in self._speaks:
            return self._tell(exchange, 404, provider_openai.unknown_url(exchange.method, exchange.path))
        if exchange.method != "POST":
            return self._refuse(exchange, wire, Fail(405, f"Not allowed to {exchange.method} on {path}"))
        try:
            exchange.json = read(exchange.body, exchange.header(b"content-type") or b"")
            exchange.step = step = self._next(exchange.json)
            return self._play(exchange, path, wire, step)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            return self._refuse(exchange, wire, Fail(400, f"Unreadable request: {error}"))

    def _tell(self, exchange: Exchange, status: int, body: bytes) -> Iterator[Action]:
        exchange.status = status
        return iter((Write(body_head(status, "application/json", body) + body), End(whole=status == 200)))

    def _next(self, body: dict[str, Any]) -> Step:
        if self._steps:
            return self._steps.popleft()
        return marked(str(body.get("model", "")), last_user(body)) or self.default

    def _play(self, exchange: Exchange, path: str, wire: ModuleType, step: Step) -> Iterator[Action]:
        stream = bool(exchange.json.get("stream"))
        if isinstance(step, Raw):
            return play_raw(step)
        if isinstance(step, Fail):
            exchange.status = step.status
            return play_failure(step, wire, stream)
        self._answers += 1
        exchange.status = 200
        if path in SERVED:
            served = SERVED[path](exchange.json, step, self._answers)
            exchange.usage = served.usage
            told = Write(served.body, served.text, served.usage.all_output, True)
            return play_body(step, told, served.content_type)
        spoken = speak(exchange.json, step, self._answers)
        exchange.usage = spoken.usage
        return play_stream(spoken, wire) if stream else play_plain(spoken, wire)

    def _refuse(self, exchange: Exchange, wire: ModuleType, fail: Fail) -> Iterator[Action]:
        exchange.status = fail.status
        return play_failure(fail, wire, False)

    def _key(self, exchange: Exchange) -> str:
        given = exchange.header(b"authorization") or exchange.header(b"x-api-key") or b""
        return given.decode("latin-1").removeprefix("Bearer ")

    def received(self, connection: int, data: bytes) -> None:
        """Bytes of requests as they come, for whoever wants to keep them."""

    def connected(self, connection: _Connection) -> None:
        self.connections += 1
        connection.number = self.connections
        self._open.add(connection)

    def lost(self, connection: _Connection) -> None:
        self._open.discard(connection)

    def ended(self, exchange: Exchange) -> None:
        if self._record:
            self._record.write(orjson.dumps(exchange.row()).decode() + "\n")


class _Connection(asyncio.Protocol):
    """Requests in, actions out, one exchange at a time; no task, so that a load test measures the gateway."""

    transport: asyncio.Transport
    number = 0

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._waiting: deque[Exchange] = deque()
        self._actions: Iterator[Action] = iter(())
        self._timer: asyncio.TimerHandle | None = None
        self.current: Exchange | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._provider.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()
        if self.current:
            self.current.hung_up = True
            self._end(self.current)
        self._provider.lost(self)

    def data_received(self, data: bytes) -> None:
        self._provider.received(self.number, data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = b"", [], []

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if any(name == b"expect" for name, _ in self._headers):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        self._waiting.append(
            Exchange(self.number, method, self._path.decode("latin-1"), self._headers, b"".join(self._body))
        )
        if self.current is None:
            self._begin()

    def _begin(self) -> None:
        self.current = self._waiting.popleft()
        self._actions = self._provider.answer(self.current)
        self._step()

    def _step(self) -> None:
        """Send until a pause or the end; what needs no pause between leaves in one write."""
        exchange, ready = self.current, []
        assert exchange
        for action in self._actions:
            if isinstance(action, Write):
                ready.append(action.data)
                exchange.text_sent += action.text
                exchange.tokens_sent += action.tokens
                exchange.chunks_sent += action.content
                continue
            if ready:
                self.transport.write(b"".join(ready))
                ready = []
            if isinstance(action, Pause):
                self._timer = asyncio.get_running_loop().call_later(action.seconds, self._step)
            else:
                self._finish(exchange, action)
            return

    def _finish(self, exchange: Exchange, end: End) -> None:
        if end.how == "hang":
            return  # `current` stays: only the client can end this
        exchange.finished, exchange.whole = True, end.whole
        self.current = None
        self._end(exchange)
        if end.how == "rst":
            reset_on_close(self.transport)
            self.transport.abort()
        elif end.how == "fin":
            self.transport.close()
        elif self._waiting:
            self._begin()

    def _end(self, exchange: Exchange) -> None:
        self._provider.ended(exchange)


def reset_on_close(transport: asyncio.BaseTransport) -> None:
    """Make the next close of `transport` send RST instead of FIN."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _serve(port: int, default: Reply, record: Path | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    file = record.open("a", encoding="utf-8") if record else None
    try:
        async with Provider(port=port, default=default, keep=1000, record=file) as provider:
            print(provider.url, flush=True)
            while not stop.is_set():
                if file:
                    file.flush()
                try:
                    await asyncio.wait_for(stop.wait(), 0.2)
                except TimeoutError:
                    continue
    finally:
        if file:
            file.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--port", type=int, default=0, help="0 takes a free one; the URL is printed")
    options.add_argument("--record", type=Path, help="append one JSON line per exchange")
    options.add_argument("--tokens", type=int, help="tokens of every answer without a marker")
    options.add_argument("--drip-ms", type=float, default=0.0, help="before each event of a stream")
    given = options.parse_args()
    try:
        import uvloop

        run: Callable[[Any], None] = uvloop.run
    except ImportError:
        run = asyncio.run
    run(_serve(given.port, Reply(tokens=given.tokens, drip_s=given.drip_ms / 1000), given.record))


if __name__ == "__main__":
    main()
