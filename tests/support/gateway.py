"""What tests ask of a running gateway process, and how they wait for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tests.e2e.gateway_process import GatewayProcess

T = TypeVar("T")


async def eventually(
    fetch: Callable[[], Awaitable[T]],
    right: Callable[[T], object] = bool,
    *,
    within_s: float = 30.0,
    every_s: float = 0.05,
) -> T:
    """The first result of `fetch` that is `right`; rarer than `until`, as each look costs the gateway a request or a
    report."""
    async with asyncio.timeout(within_s):
        while not right(found := await fetch()):
            await asyncio.sleep(every_s)
    return found


async def usage_total(gateway: GatewayProcess, team: str, *, attempts: int = 0, requests: int = 0) -> dict[str, Any]:
    """The team's totals, once so many of its attempts and requests are in the ledger."""

    async def fetch() -> dict[str, Any]:
        total: dict[str, Any] = (await asyncio.to_thread(gateway.usage, team))["total"]
        return total

    return await eventually(fetch, lambda total: total["attempts"] >= attempts and total["requests"] >= requests)
