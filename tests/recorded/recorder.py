"""Plays cases against a running gateway and turns what went over the wire into rows of the fixture."""

from __future__ import annotations

import base64
import gzip
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from tests.e2e.gateway_process import GatewayProcess
from tests.recorded.case import PATHS, Case, Server, Spoken
from tests.recorded.gateway import gateway, keys, servers_of
from tests.recorded.http_client import Response, send
from tests.recorded.normalise import Normaliser
from tests.recorded.provider import RecordingProvider

FIXTURE = Path(__file__).with_name("exchanges.jsonl.gz")
Row = dict[str, Any]
"""`name`; `request`, `upstream` (what providers received, in order) and `response`, each with its head and body."""

_LONGEST_BODY = 32_768
"""Bytes; of a longer one length and hash are kept."""


@dataclass(frozen=True)
class Setup:
    """A running gateway and its providers."""

    process: GatewayProcess
    providers: Mapping[Spoken, RecordingProvider]
    keys: Mapping[str, str]

    @property
    def ports(self) -> dict[int, str]:
        return {self.process.port: "gateway", **{each.port: name for name, each in self.providers.items()}}


async def record(cases: Sequence[Case]) -> list[Row]:
    """A row of each case, in their order."""
    async with running(cases) as setup:
        return [await _play(case, setup) for case in cases]


@asynccontextmanager
async def running(cases: Sequence[Case]) -> AsyncIterator[Setup]:
    servers = servers_of(cases)
    async with AsyncExitStack() as stack:
        providers = {speaks: await stack.enter_async_context(RecordingProvider(speaks, servers)) for speaks in PATHS}
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-recorded-"))) / "home"
        process = gateway(home, servers.values(), {speaks: each.root for speaks, each in providers.items()})
        stack.enter_context(process)
        yield Setup(process, providers, await keys(process, {case.team for case in cases}))


async def _play(case: Case, setup: Setup) -> Row:
    request = _request(case, setup)
    try:
        response = await send(setup.process.port, request)
    except (TimeoutError, OSError, EOFError) as error:
        raise RuntimeError(f"{case.name}: no response: {error!r}\n{setup.process.log[-2000:]}") from error
    received = [
        (setup.providers[server.speaks], each)
        for server in case.servers
        for each in setup.providers[server.speaks].take_requests(server.name)
    ]
    return _row(case, request, [each for _, each in received], response, Normaliser(setup.keys, setup.ports))


def _request(case: Case, setup: Setup) -> bytes:
    lines = [f"{case.method} {case.path} HTTP/1.1", f"host: 127.0.0.1:{setup.process.port}"]
    lines += [f"{name}: {value}" for name, value in case.headers]
    if case.team:
        key = setup.keys[case.team]
        lines.append(f"x-api-key: {key}" if case.path.startswith("/v1/messages") else f"authorization: Bearer {key}")
    if case.body:
        lines += [f"content-type: {case.content_type}"] if case.content_type else []
        lines.append(f"content-length: {len(case.body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + case.body


def _row(case: Case, request: bytes, upstream: Iterable[bytes], response: Response, normaliser: Normaliser) -> Row:
    """Normalised in the order in which the bytes are shown, so that placeholders count up."""
    answered = {"head": _text(normaliser.head(response.head)), "body": _body(response.body, normaliser)}
    return {
        "name": case.name,
        "request": _message(request, normaliser),
        "upstream": [_message(each, normaliser) for each in upstream],
        "response": answered if response.whole else {**answered, "broken": True},
    }


def _message(raw: bytes, normaliser: Normaliser) -> Row:
    head, _, body = raw.partition(b"\r\n\r\n")
    return {"head": _text(normaliser.head(head)), "body": _body(body, normaliser)}


def _text(head: bytes) -> list[str]:
    return head.decode("latin-1").split("\r\n")


def _body(body: bytes, normaliser: Normaliser) -> Any:
    """As text; what is no UTF-8 in base64, what is long as its length and hash."""
    if len(body) > _LONGEST_BODY:
        return {"length": len(body), "sha256": sha256(body).hexdigest()}
    try:
        return normaliser.text(body).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def written(rows: Iterable[Row]) -> bytes:
    """The fixture's bytes: a row each line, compressed, the same for the same rows."""
    return gzip.compress(b"".join(orjson.dumps(row) + b"\n" for row in rows), mtime=0)


def recorded() -> list[Row]:
    return [orjson.loads(line) for line in gzip.decompress(FIXTURE.read_bytes()).splitlines()]


__all__ = ["FIXTURE", "Row", "Server", "Setup", "record", "recorded", "running", "written"]
