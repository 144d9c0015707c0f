"""A scripted provider or two, and a fleet over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvloop
from pydantic import SecretStr

from gateway.backends.fleet import Fleet
from gateway.backends.resilience.breaker import BreakerSettings
from gateway.domain.backend import Backend
from tests.fakes.caller import Caller
from tests.fakes.provider import Provider

KEY = "sk-upstream-0123456789abcdef"

CallerOf = Callable[..., Caller]


def backend_at(provider: Provider, name: str, **changes: Any) -> Backend:
    fields: dict[str, Any] = {
        "name": name,
        "kind": "openai",
        "base_url": provider.url,
        "api_key": SecretStr(KEY),
        "model": f"model-of-{name}",
        "tier": "small",
        **changes,
    }
    return Backend(**fields)


@pytest.fixture
async def small() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


@pytest.fixture
async def large() -> AsyncIterator[Provider]:
    async with Provider() as provider:
        yield provider


@pytest.fixture
async def caller_of(small: Provider, large: Provider) -> AsyncIterator[CallerOf]:
    """A caller of a real fleet; without backends given, `small` alone."""
    made: list[Fleet] = []

    def build(*backends: Backend, breaker_settings: BreakerSettings | None = None, wait_s: float = 0.1) -> Caller:
        patient = [
            each.model_copy(update={"queue_timeout": wait_s}) for each in backends or (backend_at(small, "small"),)
        ]
        fleet = Fleet(patient, breaker_settings=breaker_settings)
        made.append(fleet)
        return Caller(fleet)

    yield build
    for fleet in made:
        await fleet.aclose()


@pytest.fixture
def pair(small: Provider, large: Provider, caller_of: CallerOf) -> Caller:
    """`small`, with `large` to fall back on."""
    return caller_of(backend_at(small, "small"), backend_at(large, "large", tier="large"))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The HTTP client is tested on both loops: their transports differ in what matters to it."""
    if item.path.name.startswith("test_http"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
