"""Pauses between two calls of one backend for the same request."""

from __future__ import annotations

import asyncio

from gateway.backends.call import BackendCall
from gateway.backends.resilience.breaker import SHORT_PAUSE_S
from gateway.errors import (
    BackendError,
    BackendFailed,
    BackendRateLimited,
    BackendUnreachable,
    NotSpoken,
    StreamBroken,
)


def pause_after(failure: BackendError) -> float | None:
    """Seconds to wait before the same backend is called again; None if the next backend should be called instead."""
    if not failure.retryable or isinstance(failure, BackendRateLimited):
        return None
    if isinstance(failure, NotSpoken):
        return 0.0
    if failure.retry_after_s is not None:
        return failure.retry_after_s + _jitter() if failure.retry_after_s <= SHORT_PAUSE_S else None
    if isinstance(failure, BackendUnreachable | BackendFailed | StreamBroken):
        return _jitter()
    return None


async def pause_ended(paused: list[BackendCall], ends: float, deadline: float) -> BackendCall | None:
    """Wait for the end of the shortest pause of a rate-limited backend. Remove this backend from `paused` and return
    it.

    Returns None if no pause ends before `ends`, or if the request's `deadline` comes first. Both are loop times.
    """
    loop = asyncio.get_running_loop()
    while paused:
        first = min(paused, key=lambda each: each.health.pause_s)
        pause_s = first.health.pause_s
        wait_s = pause_s + _jitter()
        if loop.time() + pause_s > ends or loop.time() + wait_s >= deadline:
            return None
        await asyncio.sleep(wait_s)
        if not first.health.pause_s:  # else the backend has meanwhile refused another request
            paused.remove(first)
            return first
    return None


def _jitter() -> float:
    from tenacity import AsyncRetrying, RetryCallState, wait_exponential_jitter  # here, because retries are rare

    pause = wait_exponential_jitter(multiplier=0.05, max=1.0, jitter=0.2)
    return float(pause(RetryCallState(AsyncRetrying(), None, (), {})))
