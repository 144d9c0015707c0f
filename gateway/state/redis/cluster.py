"""Connects to a cluster through redis-py's cluster client, which follows slots when they move."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis import exceptions
from redis.asyncio.cluster import ClusterNode, RedisCluster

from gateway.errors import StateUnavailable
from gateway.state.redis.address import Address
from gateway.state.redis.client import options, reason
from gateway.state.redis.commands import Command, Lost

AT_ONCE = 64
"""Maximum number of concurrent exchanges. Each exchange uses a connection to a node, and redis-py raises an error if no
connection is free."""
_PATIENCE = 0.8
"""When this share of a call's time limit has passed, redis-py stops waiting for a node and asks the other nodes which
of them has the slots."""
_NOT_REPLIES = ("CLUSTER", "COMMAND")
"""Commands that redis-py sends for its own use. Their replies must be parsed by redis-py."""


class ClusterClient:
    """Implements Client for a cluster."""

    def __init__(self, address: Address, connect_s: float, call_s: float) -> None:
        self._address, self._connect_s, self._call_s = address, connect_s, call_s

    async def connect(self, on_lost: Lost) -> ClusterTransport:
        """Open a transport of the cluster.

        `on_lost` is never called: if a node is lost, only the calls for its slots fail. The heartbeat tests the
        cluster.
        """
        return await self._open(self._call_s * _PATIENCE)

    async def dial(self) -> ClusterTransport:
        return await self._open(None)

    async def aclose(self) -> None:
        """Does nothing, because each transport has its own cluster client."""

    async def _open(self, read_s: float | None) -> ClusterTransport:
        name = str(self._address)
        try:
            cluster = RedisCluster(
                startup_nodes=[ClusterNode(host, port) for host, port in self._address.hosts],
                require_full_coverage=False,
                **{**self._options(), "socket_timeout": read_s},
            )
            async with asyncio.timeout(self._connect_s * (1 + len(self._address.hosts))):
                await cluster.initialize()
        except (exceptions.RedisError, exceptions.RedisClusterException, OSError, TypeError, ValueError) as error:
            raise StateUnavailable(f"{name}: {reason(error)}") from error
        for command in list(cluster.response_callbacks):
            if not command.startswith(_NOT_REPLIES):
                cluster.set_response_callback(command, _as_it_is)
        return ClusterTransport(name, cluster)

    def _options(self) -> dict[str, Any]:
        given = options(self._address.url(), self._connect_s)
        for name in ("host", "port", "db", "connection_class"):
            given.pop(name, None)
        return {**given, "ssl": self._address.tls}


class ClusterTransport:
    """Implements Transport for a cluster. All keys of one command must have one hash tag. Commands of one pipeline may
    have different tags."""

    def __init__(self, name: str, cluster: RedisCluster) -> None:
        self._name, self._cluster = name, cluster
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def exchange(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                replies = await self._ask(commands)
        except Exception as error:  # redis-py also raises KeyError and AttributeError while slots move
            raise StateUnavailable(f"{self._name}: {reason(error)}") from error
        return [_refusal(reply) if isinstance(reply, Exception) else reply for reply in replies]

    async def _ask(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) == 1:
            try:
                return [await self._cluster.execute_command(*commands[0], **self._place(commands[0]))]
            except exceptions.ResponseError as error:
                return [error]
        pipeline = self._cluster.pipeline()
        for command in commands:
            pipeline.execute_command(*command, **self._place(command))
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies

    def _place(self, command: Command) -> dict[str, Any]:
        """Options that tell redis-py which node gets an XREAD command. They save a round trip. Empty for other
        commands.
        """
        if command[0] != "XREAD":
            return {}
        key = command[list(command).index("STREAMS") + 1]
        return {"target_nodes": self._cluster.get_node_from_key(str(key))}

    async def aclose(self) -> None:
        await self._cluster.aclose()


def _as_it_is(response: Any, **_: Any) -> Any:
    return response


def _refusal(error: Exception) -> StateUnavailable:
    return StateUnavailable(reason(error))
