"""The connection to the state server, with deadlines, circuit breaker, heartbeat, and an epoch (an id stored on the
server) by which lost data are detected."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.redis.address import Address, parse
from gateway.state.redis.commands import Client, Command, Transport

log = logging.getLogger(__name__)

HEARTBEAT_S = 0.3
FRESH_S = 1.0
"""Seconds after a heartbeat for which the server counts as healthy."""
CONNECT_S = 1.0
_USELESS = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOAUTH", "WRONGPASS", "BUSY")
"""Error replies of a server that cannot serve at present. After one of them, the gateway connects again, perhaps to
another server."""


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, run by its hash. All its keys must share one hash tag (`State.key(..., tag=)`)."""

    name: str
    text: str
    sha1: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha1", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class State:
    """The connection to the state server, for the event loop that opened it. A slow server counts as unavailable, until
    a heartbeat has succeeded."""

    def __init__(self, url: str, *, timeout_s: float = 0.25, namespace: str = "tg") -> None:
        """`timeout_s`: maximum seconds to wait for a reply. Raises ValueError for an invalid URL."""
        self._address = parse(url)
        self._client: Client | None = None
        self.timeout_s = timeout_s
        self._namespace = namespace
        self._transport: Transport | None = None
        self._seen = float("-inf")
        self._epoch = ""
        self._reason = f"{self._address}: not connected yet"
        self._listeners: list[Callable[[str], None]] = []
        self._tasks = Tasks()
        self._kick = asyncio.Event()
        self._tried = asyncio.Event()
        self._counts = {"calls": 0, "refused": 0, "failed": 0, "connects": 0}

    async def open(self) -> None:
        """Return after the first attempt to connect, whether or not it succeeded. The heartbeat continues to try."""
        self._tasks.spawn(self._keep(), "state heartbeat")
        await self._tried.wait()

    async def aclose(self) -> None:
        await self._tasks.aclose()
        transport, self._transport = self._transport, None
        self._reason = "closed"
        if transport:
            await transport.aclose()
        if self._client:
            await self._client.aclose()

    @property
    def healthy(self) -> bool:
        """Whether the server is connected and a heartbeat has succeeded within the last second."""
        transport = self._transport
        return transport is not None and time.monotonic() - self._seen <= FRESH_S

    @property
    def epoch(self) -> str:
        """A random id stored on the server. If it changes, the server has lost its data. Empty while unknown."""
        return self._epoch

    @property
    def own(self) -> bool:
        """Whether the server belongs to this gateway, so that no other program uses it."""
        return self._address.own

    def on_epoch(self, callback: Callable[[str], None]) -> None:
        """Call `callback(epoch)` whenever the epoch becomes known or changes."""
        self._listeners.append(callback)

    def key(self, *parts: str, tag: str | None = None) -> str:
        """The full name of a key, `tg:{tag}:a:b`. Keys with the same tag are in the same slot of a cluster."""
        return ":".join((self._namespace, *parts) if tag is None else (self._namespace, f"{{{tag}}}", *parts))

    async def call(self, *command: str | bytes | int | float) -> Any:
        """Send one command and return the reply: bytes, int, list or None. Raises StateUnavailable, without waiting
        if the server is known to be unavailable.
        """
        (reply,) = await self._exchange((command,))
        return reply if not isinstance(reply, Exception) else self._refuse(reply)

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip and return one reply per command. The commands are not atomic.

        Raises StateUnavailable if a command was refused; all other commands were executed.
        """
        if not commands:
            return []
        replies = await self._exchange(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                self._refuse(reply)
        return replies

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | int | float]) -> Any:
        """Run the script and return its result. Raises StateUnavailable; then it is unknown whether the script ran."""
        (reply,) = await self._exchange((("EVALSHA", script.sha1, len(keys), *keys, *args),))
        if isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT"):
            (reply,) = await self._exchange((("EVAL", script.text, len(keys), *keys, *args),))
        return reply if not isinstance(reply, Exception) else self._refuse(reply)

    async def dial(self) -> Transport:
        """Open a connection for this caller alone, for commands that block. Raises StateUnavailable."""
        return await (await self._reach()).dial()

    def stats(self) -> dict[str, int | float | str]:
        return {"healthy": int(self.healthy), "epoch": self._epoch, **self._counts}

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        transport = self._transport
        if transport is None:
            self._counts["refused"] += 1
            raise StateUnavailable(self._reason)
        self._counts["calls"] += len(commands)
        try:
            return await transport.exchange(commands, self.timeout_s)
        except StateUnavailable:
            self._counts["failed"] += 1
            raise

    def _refuse(self, reply: Exception) -> Any:
        """Raise StateUnavailable for the server's error reply `reply`."""
        self._counts["failed"] += 1
        if str(reply).startswith(_USELESS):
            self._down(f"{self._address}: {reply}")
        raise StateUnavailable(str(reply)) from reply

    def _down(self, reason: str) -> None:
        if self._transport is not None:
            log.warning("state is down: %s", reason)
            transport, self._transport = self._transport, None
            self._tasks.spawn(transport.aclose(), "state link close")
        self._reason = reason
        self._kick.set()

    async def _keep(self) -> None:
        """Send heartbeats. This is the only task that connects."""
        while True:
            self._kick.clear()
            try:
                await self._beat()
            except StateUnavailable as error:
                self._down(str(error))
                self._kick.clear()  # connecting has just failed, so wait for the next heartbeat
            except Exception as error:  # no error may end the heartbeat
                log.exception("state heartbeat")
                self._down(repr(error))
                self._kick.clear()
            self._tried.set()
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._kick.wait()
            except TimeoutError:
                continue

    async def _beat(self) -> None:
        transport = self._transport
        if transport is not None:
            self._learn(await self._read_epoch(transport))
            return
        transport = await (await self._reach()).connect(self._down)
        try:
            epoch = await self._read_epoch(transport)
        except BaseException:
            await transport.aclose()
            raise
        self._transport = transport
        self._counts["connects"] += 1
        self._learn(epoch)

    async def _read_epoch(self, transport: Transport) -> str:
        key = self.key("epoch")
        for command in (("GET", key), ("SET", key, secrets.token_hex(8), "NX"), ("GET", key)):
            (reply,) = await transport.exchange((command,), self.timeout_s)
            if isinstance(reply, Exception):
                raise StateUnavailable(f"{self._address}: {reply}") from reply
            if command[0] == "GET" and reply is not None:
                return str(reply, "ascii", "replace")
        raise StateUnavailable(f"{self._address}: the server does not keep a key that was set")

    def _learn(self, epoch: str) -> None:
        self._seen = time.monotonic()
        if epoch == self._epoch:
            return
        if self._epoch:
            log.warning("state lost its data (epoch %s, was %s): rebuilding", epoch, self._epoch)
        self._epoch = epoch
        for listener in self._listeners:
            listener(epoch)

    async def _reach(self) -> Client:
        if self._client is None:
            connect_s = max(CONNECT_S, self.timeout_s)
            self._client = await asyncio.to_thread(_make_client, self._address, connect_s, self.timeout_s)
        return self._client


def _make_client(address: Address, connect_s: float, call_s: float) -> Client:
    """The client for `address`. `connect_s`: maximum seconds for connecting. `call_s`: maximum seconds for a reply.
    Call it in a thread: importing redis-py is slow."""
    if address.kind == "cluster":
        from gateway.state.redis.cluster import ClusterClient

        return ClusterClient(address, connect_s, call_s)
    if address.kind == "unix" and not (address.login or address.query):
        from gateway.state.redis.unix import UnixClient

        return UnixClient(address, connect_s)
    from gateway.state.redis.client import ServerClient

    return ServerClient(address, connect_s)
