"""Connects through redis-py to one server, or to the master that Sentinel names. redis-py connects, logs in and does
TLS; `transport.py` sends the commands."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Connection, Sentinel
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import NoBackoff

from gateway.errors import StateUnavailable
from gateway.state.redis.address import Address
from gateway.state.redis.commands import Lost
from gateway.state.redis.transport import CONNECTIONS, LATE, OwnTransport, SharedTransport


def reason(error: BaseException) -> str:
    """The text of the error. For an error reply of the server, it includes the error code, which redis-py removes
    from its text.
    """
    if isinstance(error, exceptions.InvalidResponse):
        return f"does not speak the Redis protocol ({error})"
    if isinstance(error, TimeoutError | exceptions.TimeoutError):
        return LATE
    code = getattr(error, "status_code", None)
    return f"{code} {error}" if code else str(error) or type(error).__name__


def options(url: str, connect_s: float) -> dict[str, Any]:
    """Options for redis-py, read from the URL. The gateway sets the options for deadlines itself. `connect_s`: maximum
    seconds for connecting.
    """
    return {
        **parse_url(url),
        "driver_info": None,  # otherwise redis-py reads the package's metadata from disk for every connection
        "decode_responses": False,
        "protocol": 2,  # needs no HELLO, and all servers encode streams in the same way
        "retry": Retry(NoBackoff(), 0),  # a retry would ignore the call's deadline
        "health_check_interval": 0,
        "socket_timeout": None,
        "socket_connect_timeout": connect_s,
    }


class ServerClient:
    """Implements Client for one server: the server of the URL, or the master that Sentinel names."""

    def __init__(self, address: Address, connect_s: float) -> None:
        self._address, self._connect_s = address, connect_s
        self._pools: dict[str, BlockingConnectionPool] = {}

    async def connect(self, on_lost: Lost) -> SharedTransport:
        return SharedTransport(await self.dial(), on_lost)

    async def dial(self) -> OwnTransport:
        try:
            url = self._address.url(*await self._master()) if self._address.kind == "sentinel" else self._address.url()
            pool = self._pools.get(url) or self._pools.setdefault(url, self._make_pool(url))
            async with asyncio.timeout(self._connect_s):  # redis-py's own timeout does not include the login
                connection = await pool.get_connection()
        except (exceptions.RedisError, OSError, TypeError, ValueError) as error:
            raise StateUnavailable(f"{self._address}: {reason(error)}") from error
        return OwnTransport(str(self._address), _PooledChannel(pool, connection))

    async def aclose(self) -> None:
        for pool in self._pools.values():
            with suppress(exceptions.RedisError, OSError):  # closing took too long
                await pool.disconnect()

    def _make_pool(self, url: str) -> BlockingConnectionPool:
        """A pool that waits for a free connection. Raises TypeError or ValueError for unknown options."""
        limits = {"max_connections": CONNECTIONS, "timeout": self._connect_s}
        return BlockingConnectionPool(**{**options(url, self._connect_s), **limits})

    async def _master(self) -> tuple[str, int]:
        """Host and port of the master. Raises redis-py's MasterNotFoundError without its text, because the text may
        contain a password."""
        sentinel = Sentinel(self._address.hosts, sentinel_kwargs=self._sentinel_options())
        try:
            host, port = await sentinel.discover_master(self._address.service)
        except MasterNotFoundError:
            raise MasterNotFoundError(f"no sentinel names a master called {self._address.service!r}") from None
        finally:
            for one in sentinel.sentinels:
                await one.aclose()
        return host, port

    def _sentinel_options(self) -> dict[str, Any]:
        """The options for connecting to a Sentinel: those of the server, without the server's address and login."""
        given = options(self._address.url(), self._connect_s)
        for name in ("host", "port", "db", "username", "password", "connection_class"):
            given.pop(name, None)
        return {
            **given,
            "password": self._address.sentinel_password or None,
            "ssl": self._address.tls,
            "socket_timeout": self._connect_s,
        }


class _PooledChannel:
    """Implements Channel on a connection of redis-py's pool."""

    def __init__(self, pool: BlockingConnectionPool, connection: Connection) -> None:
        self._pool, self._connection = pool, connection

    async def write(self, packed: bytes) -> None:
        try:
            await self._connection.send_packed_command(packed, check_health=False)
        except (exceptions.RedisError, OSError) as error:
            raise StateUnavailable(reason(error)) from error

    async def read(self) -> Any:
        try:
            return await self._connection.read_response(disconnect_on_error=False)
        except exceptions.ResponseError as error:
            return StateUnavailable(reason(error))
        except (exceptions.RedisError, OSError) as error:
            raise StateUnavailable(reason(error)) from error

    async def aclose(self) -> None:
        await self._connection.disconnect(nowait=True)
        await self._pool.release(self._connection)
