"""A scripted provider that tells the requests of many backends apart by their path, and keeps the bytes it received."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

from tests.fakes.provider import Exchange, Provider
from tests.fakes.provider_play import Action
from tests.fakes.provider_script import Step
from tests.recorded.case import PATHS, Server, Spoken


class RecordingProvider(Provider):
    """Serves all `servers` that speak one dialect: `/NAME/v1/…` is the request of the server NAME.

    The numbers in its answers' ids depend on the server's name and on how often it was asked, not on other servers.
    """

    def __init__(self, speaks: Spoken, servers: Mapping[str, Server]) -> None:
        super().__init__(speaks=PATHS[speaks], keep=1000)
        self._servers = servers
        self._arrived: defaultdict[int, bytes] = defaultdict(bytes)
        """Connection → bytes of the request that is being received."""
        self._requests: defaultdict[str, list[bytes]] = defaultdict(list)
        self._asked: Server | None = None
        self._asked_before: Counter[str] = Counter()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def received(self, connection: int, data: bytes) -> None:
        self._arrived[connection] += data

    def answer(self, exchange: Exchange) -> Iterator[Action]:
        _, name, path = exchange.path.split("/", 2)
        self._asked = self._servers[name]
        self._answers = crc32(name.encode()) % 900_000 + 99_999 + self._asked_before[name]
        self._asked_before[name] += 1
        self._requests[name].append(self._arrived.pop(exchange.connection))
        exchange.path = f"/{path}"
        return super().answer(exchange)

    def _next(self, body: dict[str, Any]) -> Step:
        assert self._asked is not None
        return self._asked.step

    def take_requests(self, name: str) -> list[bytes]:
        """What the server NAME received since the last call, one whole request each, head and body."""
        return self._requests.pop(name, [])
