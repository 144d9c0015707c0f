"""What redis-py is told, and that its connections are lent and given back."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection

from gateway.errors import StateUnavailable
from gateway.state.redis.address import parse
from gateway.state.redis.client import ServerClient, options
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer
from gateway.state.redis.transport import CONNECTIONS
from gateway.state.redis.unix import UnixClient


@pytest.mark.parametrize(
    ("url", "kind", "told"),
    [
        ("unix:///run/a%20b.sock?db=2", UnixDomainSocketConnection, {"path": "/run/a b.sock", "db": 2}),
        (
            "redis://u:p%40@[::1]:7/4",
            Connection,
            {"host": "::1", "port": 7, "username": "u", "password": "p@", "db": 4},
        ),
        ("rediss://host?ssl_cert_reqs=none", SSLConnection, {"host": "host", "ssl_cert_reqs": "none"}),
    ],
)
def test_redis_py_reads_the_url_as_it_was_meant(url: str, kind: type, told: dict[str, object]) -> None:
    given = options(parse(url).url(), 1.0)
    assert given.get("connection_class", Connection) is kind
    assert told.items() <= given.items()


def test_a_url_cannot_undo_what_deadlines_and_callers_rely_on() -> None:
    given = options("redis://host?socket_timeout=60&decode_responses=1&protocol=3&health_check_interval=5", 1.0)
    assert (given["socket_timeout"], given["decode_responses"], given["protocol"]) == (None, False, 2)
    assert given["health_check_interval"] == 0
    assert given["retry"].get_retries() == 0


def test_certificates_are_checked_unless_told_otherwise() -> None:
    def made(url: str) -> SSLConnection:
        given = options(parse(url).url(), 1.0)
        return SSLConnection(**{name: value for name, value in given.items() if name != "connection_class"})

    checked, unchecked = made("rediss://host"), made("rediss://host?ssl_cert_reqs=none")
    assert (checked.check_hostname, unchecked.check_hostname) == (True, False)


@pytest.mark.parametrize("kind", [ServerClient, UnixClient])
async def test_when_all_connections_are_lent_the_next_waits_for_one(
    server: EmbeddedServer, kind: type[ServerClient | UnixClient]
) -> None:
    client = kind(parse(server.url), 0.2)
    lines = [await client.dial() for _ in range(CONNECTIONS)]
    with pytest.raises(StateUnavailable):
        await client.dial()
    waiting = asyncio.get_running_loop().create_task(client.dial())
    await asyncio.sleep(0)
    await lines.pop().aclose()
    lines.append(await waiting)
    assert await lines[-1].exchange([("PING",)], 1.0) == [b"PONG"]
    for line in lines:
        await line.aclose()


async def test_an_option_there_is_not_is_named() -> None:
    state = State("redis://127.0.0.1:1?nonsense=1")
    await state.open()
    with pytest.raises(StateUnavailable, match="nonsense"):
        await state.call("PING")
    await state.aclose()


async def test_a_master_that_no_sentinel_names_is_told_without_passwords() -> None:
    state = State("redis+sentinel://:secret@127.0.0.1:1/main?sentinel_password=hidden")
    await state.open()
    with pytest.raises(StateUnavailable, match="no sentinel names a master called 'main'") as caught:
        await state.call("PING")
    assert not {"secret", "hidden"} & set(str(caught.value).replace("'", " ").split())
    await state.aclose()
