"""A scripted provider at the port that a module's gateway was told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from loadtests.ports import free_port
from tests.fakes.provider import Provider


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture
async def provider(port: int) -> AsyncIterator[Provider]:
    async with Provider(port=port) as provider:
        yield provider
