"""The way into a Redis or Valkey cluster; redis-py knows the slots, the redirections and the failovers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisError, ResponseError

from gateway.errors import StateUnavailable
from gateway.state.address import Address
from gateway.state.link import Command

_MOVES = 3
"""Redirections followed for one command, enough for a slot on the move."""


class ClusterDoor:
    """Implements Door. Replies are raw, as a single server would give them."""

    def __init__(self, client: RedisCluster) -> None:
        self._client = client
        self._client.response_callbacks.clear()
        self.alive = True

    @classmethod
    async def open(cls, address: Address, timeout_s: float) -> ClusterDoor:
        """Learn the topology. Raises StateUnavailable."""
        client = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            username=address.username or None,
            password=address.password or None,
            ssl=address.tls is not None,
            cluster_error_retry_attempts=_MOVES,
            socket_connect_timeout=timeout_s,
            protocol=2,
        )
        door = cls(client)
        try:
            async with asyncio.timeout(timeout_s):
                await client.initialize()
        except (RedisError, OSError, TimeoutError) as error:
            await door.aclose()
            raise StateUnavailable(f"{address}: {str(error) or 'no cluster in time'}") from error
        client.response_callbacks.clear()
        return door

    async def exchange(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        try:
            async with asyncio.timeout(timeout_s):
                return list(await asyncio.gather(*(self._one(command) for command in commands)))
        except (RedisError, OSError, TimeoutError) as error:
            raise StateUnavailable(f"cluster: {str(error) or 'no reply in time'}") from error

    async def _one(self, command: Command) -> Any:
        try:
            return await self._client.execute_command(*command)
        except ResponseError as error:
            return error

    async def aclose(self) -> None:
        self.alive = False
        await self._client.aclose()
