"""Plays cases against a running gateway and turns what went over the wire into rows of the fixture."""

from __future__ import annotations

import base64
import gzip
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from tests.e2e.gateway_process import GatewayProcess
from tests.recorded.case import PATHS, RESPONSE_ID, Case, Spoken
from tests.recorded.gateway import gateway, keys, servers_of
from tests.recorded.http_client import Response, send
from tests.recorded.normalise import Normaliser, decoded
from tests.recorded.provider import RecordingProvider

FIXTURE = Path(__file__).with_name("exchanges.jsonl.gz")
Row = dict[str, Any]
"""`name`; `request`, `upstream` (what providers received, in order) and `response`, each with its head and body."""

_RESPONSE_ID = re.compile(rb'"id": ?"(resp_[^"]+)"')
_LONGEST_BODY = 32_768
"""Bytes; of a longer one length and hash are kept."""


class Setup:
    """A running gateway and its providers."""

    def __init__(
        self, process: GatewayProcess, providers: Mapping[Spoken, RecordingProvider], keys: Mapping[str, str]
    ) -> None:
        self._process, self._providers, self._keys = process, providers, keys
        self._ports = {process.port: "gateway", **{each.port: name for name, each in providers.items()}}
        self._since = time.time()
        self._responses: dict[str, str] = {}
        """Name of a case → the id of its response, for the cases after it."""

    async def play(self, case: Case) -> Row:
        """Send the request of `case`; its row. Raises RuntimeError where no response comes."""
        request = self._request(case)
        try:
            response = await send(self._process.port, request)
        except (TimeoutError, OSError, EOFError) as error:
            raise RuntimeError(f"{case.name}: no response: {error!r}\n{self._process.log[-2000:]}") from error
        if found := _RESPONSE_ID.search(response.body):
            self._responses[case.name] = found[1].decode()
        received = [
            each for server in case.servers for each in self._providers[server.speaks].take_requests(server.name)
        ]
        normaliser = Normaliser(self._keys, self._ports, since=self._since, waits=case.own_waits)
        return _row(case, request, received, response, normaliser)

    def _request(self, case: Case) -> bytes:
        earlier = self._responses.get(case.after, RESPONSE_ID)
        body = case.body.replace(RESPONSE_ID.encode(), earlier.encode())
        path = case.path.replace(RESPONSE_ID, earlier)
        lines = [f"{case.method} {path} HTTP/1.1", f"host: 127.0.0.1:{self._process.port}"]
        lines += [f"{name}: {value}" for name, value in case.headers]
        if case.team:
            key = self._keys[case.team]
            lines.append(f"x-api-key: {key}" if path.startswith("/v1/messages") else f"authorization: Bearer {key}")
        if body:
            lines += [f"content-type: {case.content_type}"] if case.content_type else []
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def record(cases: Sequence[Case]) -> list[Row]:
    """A row of each case, in their order."""
    async with running(cases) as setup:
        return [await setup.play(case) for case in cases]


@asynccontextmanager
async def running(cases: Sequence[Case]) -> AsyncIterator[Setup]:
    servers = servers_of(cases)
    async with AsyncExitStack() as stack:
        providers = {speaks: await stack.enter_async_context(RecordingProvider(speaks, servers)) for speaks in PATHS}
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-recorded-"))) / "home"
        process = gateway(home, servers.values(), {speaks: each.root for speaks, each in providers.items()})
        stack.enter_context(process)
        yield Setup(process, providers, await keys(process, {case.team for case in cases}))


def _row(case: Case, request: bytes, upstream: Iterable[bytes], response: Response, normaliser: Normaliser) -> Row:
    """Normalised in the order in which the bytes are shown, so that placeholders count up."""
    sent = _message(*_parted(request), normaliser)
    received = [_message(*_parted(each), normaliser) for each in upstream]
    answered = _message(*decoded(response.head, response.body), normaliser)
    if not response.whole:
        answered["broken"] = True
    return {"name": case.name, "request": sent, "upstream": received, "response": answered}


def _parted(request: bytes) -> tuple[bytes, bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    return head, body


def _message(head: bytes, body: bytes, normaliser: Normaliser) -> Row:
    lines = normaliser.head(head, body).decode("latin-1").split("\r\n")
    return {"head": lines, "body": _body(body, normaliser)}


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
