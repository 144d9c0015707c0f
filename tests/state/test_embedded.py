"""The server that comes along: found, locked, restarted, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from gateway.state.leases.leases import Leases
from gateway.state.redis import bundle
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer, EmbeddedServerError, find_binary


def test_the_bundled_server_is_found_without_importing_its_package() -> None:
    assert find_binary().endswith("valkey-server")


def test_a_server_starts_answers_and_stops(directory: Path) -> None:
    server = EmbeddedServer(directory / "new" / "dir")
    assert not server.ping()
    server.start()
    assert server.ping()
    assert server.pid
    assert (directory / "new" / "dir").stat().st_mode & 0o777 == 0o700
    server.stop()
    assert (server.alive(), server.ping(), server.pid) == (False, False, None)
    server.stop()


async def test_when_memory_is_full_old_answers_go_and_counters_in_use_stay(directory: Path) -> None:
    server = EmbeddedServer(directory, max_memory_bytes=32 * 2**20)
    await asyncio.to_thread(server.start)
    state = State(server.url, timeout_s=2.0)
    await state.open()
    leases = Leases(state, period_s=0.05)
    await leases.open()

    async def settled() -> int:
        return 0

    try:
        budget = leases.counter("a", "budget", kind="sum", limit=10**12, life_ms=86_400_000, rebuild=settled)
        rate = leases.counter("a", "requests", kind="rate", limit=10**6)
        assert await leases.take([(budget, 500), (rate, 1)]) is None
        leases.settle([budget], 500, 500)
        epoch = state.epoch
        for number in range(450):  # 45 MiB
            await bundle.put(state, state.key("cache", str(number)), [("a", b"x" * 100_000)], 86_400)
            if number == 250:
                await asyncio.sleep(1.2)  # the server tells ages apart by the second
            elif number % 20 == 0:
                await asyncio.sleep(0.05)
        left = await state.call("EXISTS", *[state.key("cache", str(number)) for number in range(450)])
        assert 100 < left < 400
        assert await state.call("EXISTS", budget.key, rate.key, state.key("epoch")) == 3
        await leases.refresh([budget, rate], 0.0)
        assert (budget.settled, rate.settled, leases.stats()["rebuilt"]) == (500, 1, 1)
        assert state.epoch == epoch
    finally:
        await leases.aclose()
        await state.aclose()
        await asyncio.to_thread(server.stop)


def test_starting_twice_is_once(server: EmbeddedServer) -> None:
    pid = server.pid
    server.start()
    assert server.pid == pid


def test_a_second_server_never_touches_the_same_data(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.state.redis.embedded.LOCK_S", 0.1)
    with pytest.raises(EmbeddedServerError, match="another server runs on"):
        EmbeddedServer(server.directory).start()
    assert server.ping()


def test_a_killed_server_leaves_nothing_that_hinders_the_next(server: EmbeddedServer) -> None:
    server.kill()
    assert server.socket.exists()
    server.start()
    assert server.ping()


def test_a_frozen_server_fails_the_ping_and_can_be_stopped(server: EmbeddedServer) -> None:
    assert server.pid
    os.kill(server.pid, signal.SIGSTOP)
    assert (server.alive(), server.ping(0.05)) == (True, False)
    server.stop()
    assert not server.alive()


def test_a_long_data_directory_gets_a_short_socket_path(directory: Path) -> None:
    deep = directory / ("x" * 90) / "valkey"
    server = EmbeddedServer(deep)
    assert len(str(server.socket)) < 100
    assert EmbeddedServer(deep).url == server.url
    server.start()
    assert server.ping()
    server.stop()
    server.socket.parent.rmdir()


def test_unreadable_data_are_reported_and_can_be_set_aside(server: EmbeddedServer) -> None:
    server.stop()
    for file in (server.directory / "appendonlydir").glob("*.manifest"):
        file.write_bytes(b"not a manifest\n")
    if (server.directory / "appendonly.aof").exists():
        (server.directory / "appendonly.aof").write_bytes(b"*1\r\n$4\r\nwhat\r\n")
    with pytest.raises(EmbeddedServerError, match="ended with status 1"):
        server.start()
    assert server.set_aside()
    server.start()
    assert server.ping()


@pytest.mark.parametrize(("way", "renewed"), [("killed", False), ("crashed", True), ("stopped", False)])
def test_only_a_machine_that_went_down_under_the_server_renews_the_epoch(
    server: EmbeddedServer, way: str, renewed: bool
) -> None:
    server._ask("SET tg:epoch old")
    if way == "stopped":
        server.stop()
    else:
        server.kill()
    if way == "crashed":
        (server.directory / "running").write_text("an earlier start of the machine")
    server.start()
    assert server._ask("GET tg:epoch") == (b"$-1\r\n" if renewed else b"$3\r\nold\r\n")


def test_a_program_that_is_no_server_is_reported(directory: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="ended with status"):
        EmbeddedServer(directory, binary="/bin/false").start()
