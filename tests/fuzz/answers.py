"""A scripted provider whose valid answers are changed before they leave: heads, JSON, events, framing."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import orjson

from tests.fakes.provider import Exchange, Provider
from tests.fakes.provider_play import Action, End, Write, body_head
from tests.fakes.provider_script import Reply
from tests.fuzz.mutate import as_json, spoilt

REPLIES = (
    Reply(),
    Reply(tokens=5, reasoning="so it is"),
    Reply(tool="f"),
    Reply(finish="length"),
    Reply(usage="absent"),
    Reply(usage="wrong"),
    Reply(usage="negative"),
    Reply(usage="nonsense"),
    Reply(error_event="broken", after=1),
    Reply(done=False),
    Reply(crlf=True),
    Reply(cached_tokens=3, cache_write_tokens=2),
)
HEADS = (
    b"content-encoding: gzip",
    b"content-encoding: br",
    b"content-encoding: gzip, gzip",
    b"content-type: text/html",
    b"content-type: application/json",
    b"content-type: text/event-stream",
    b"content-type:",
    b"content-length: 3",
    b"content-length: 99999",
    b"content-length: -1",
    b"transfer-encoding: chunked",
    b"transfer-encoding: gzip, chunked",
    b"set-cookie: a=b",
    b"x-request-id: \xff\x00",
    b"retry-after: nan",
    b"connection: close",
    b"location: http://[",
    b"a: b\r\n c",
    b"no colon",
    b"h: " + b"a" * 70_000,
    b"keep-alive: timeout=x",
    b"x-ratelimit-remaining-requests: -1e9",
)
STATUSES = (
    b"200",
    b"200",
    b"200",
    b"201",
    b"204",
    b"206",
    b"301",
    b"304",
    b"400",
    b"401",
    b"404",
    b"408",
    b"413",
    b"422",
    b"429",
    b"500",
    b"503",
    b"529",
    b"99",
    b"600",
    b"999",
    b"abc",
    b"100",
    b"101",
)


_MANY = re.compile(rb'"(n|best_of|dimensions|top_n|top_logprobs)"\s*:\s*-?[\d.eE+]{4}')


class FuzzedProvider(Provider):
    """Changes the share `share` of its answers, with `random`."""

    random = Random(0)
    share = 0.0

    def answer(self, exchange: Exchange) -> Iterator[Action]:
        random = self.random
        if _MANY.search(exchange.body):  # as many answers as it asks for would not fit into memory
            body = b'{"error": {"message": "too many", "type": "invalid_request_error"}}'
            return iter((Write(body_head(400, "application/json", body) + body), End()))
        if exchange.method != "POST" or random.random() >= self.share:
            return super().answer(exchange)
        self.default = random.choice(REPLIES)
        data = b"".join(action.data for action in super().answer(exchange) if isinstance(action, Write))
        self.default = Reply()
        changed = changed_answer(random, data)
        return iter((Write(changed), End(random.choice(("fin", "fin", "fin", "rst")), whole=False)))


def changed_answer(random: Random, data: bytes) -> bytes:
    """A valid HTTP answer with its body, its head or its bytes changed."""
    head, _, body = data.partition(b"\r\n\r\n")
    chunked = b"transfer-encoding: chunked" in head
    body = _unchunked(body) if chunked else body
    body = _events(random, body) if b"event-stream" in head else _plain(random, body)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"content-length", b"transfer-"))]
    if random.random() < 0.15:
        lines[0] = b"HTTP/1.1 " + random.choice(STATUSES) + b" X"
    if random.random() < 0.15:
        lines.insert(random.randint(1, len(lines)), random.choice(HEADS))
    match random.choice(("length", "length", "chunked", "chunked", "eof", "short")):
        case "length":
            lines.append(b"content-length: %d" % len(body))
        case "chunked":
            lines.append(b"transfer-encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        case "eof":
            lines.append(b"connection: close")
        case _:
            lines.append(b"content-length: %d" % (len(body) + 10))
    whole = b"\r\n".join(lines) + b"\r\n\r\n" + body
    return spoilt(random, whole) if random.random() < 0.1 else whole


def _unchunked(data: bytes) -> bytes:
    found = bytearray()
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size.partition(b";")[0] or b"0", 16)
        found += data[:length]
        data = data[length + 2 :] if length else b""
    return bytes(found)


def _plain(random: Random, body: bytes) -> bytes:
    try:
        return as_json(random, orjson.loads(body))
    except ValueError:  # sound, or what a changed request made the provider say
        return spoilt(random, body)


def _events(random: Random, body: bytes) -> bytes:
    """One to three events changed, doubled, left out or out of order."""
    events = [event for event in body.replace(b"\r\n", b"\n").split(b"\n\n") if event]
    for _ in range(random.randint(1, 3)):
        if not events:
            break
        at = random.randrange(len(events))
        match random.randrange(6):
            case 0:
                del events[at]
            case 1:
                events[at:at] = [events[at]] * random.choice((1, 3, 50))
            case 2:
                events.append(events.pop(at))
            case 3:
                events[at] = spoilt(random, events[at])
            case _:
                events[at] = _event(random, events[at])
    return b"".join(event + b"\n\n" for event in events)


def _event(random: Random, event: bytes) -> bytes:
    lines = event.split(b"\n")
    for number, line in enumerate(lines):
        if line.startswith(b"data: {"):
            lines[number] = b"data: " + as_json(random, _loaded(line[6:])).replace(b"\n", b"")
    return b"\n".join(lines)


def _loaded(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return {}


class Running:
    """A `FuzzedProvider` on `port` in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.provider = FuzzedProvider(port=port, keep=1000)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FuzzedProvider:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.provider.listen(), self._loop).result(10)
        return self.provider

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.provider.refuse(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
