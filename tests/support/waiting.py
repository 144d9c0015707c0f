"""Waits on a condition in place of sleeps: polls quickly at first, and fails with the condition's source and value."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload
from urllib.error import HTTPError

T = TypeVar("T")

FIRST_PAUSE_S, GROWTH, LAST_PAUSE_S = 0.005, 1.1, 0.05
"""Between two looks: what comes soon is seen soon, and a long wait leaves the processor to what is waited for."""

Errors = tuple[type[Exception], ...]


@overload
async def until(condition: Callable[[], Awaitable[T | None]], within_s: float = 30.0, *, not_yet: Errors = ()) -> T: ...
@overload
async def until(condition: Callable[[], T | None], within_s: float = 30.0, *, not_yet: Errors = ()) -> T: ...
async def until(condition: Callable[[], object], within_s: float = 30.0, *, not_yet: Errors = ()) -> object:
    """Poll until `condition()`, awaited if it is awaitable, is true; returns that value.

    An exception listed in `not_yet` counts as false. Raises AssertionError after `within_s` seconds.
    """
    deadline, pause_s = time.monotonic() + within_s, FIRST_PAUSE_S
    while True:
        try:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            last = repr(value)
        except not_yet as error:
            last = _told(error)
        _check(deadline, within_s, condition, last)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, LAST_PAUSE_S)


def wait_until(condition: Callable[[], T | None], within_s: float = 30.0, *, not_yet: Errors = ()) -> T:
    """`until` for tests without an event loop."""
    deadline, pause_s = time.monotonic() + within_s, FIRST_PAUSE_S
    while True:
        try:
            if value := condition():
                return value
            last = repr(value)
        except not_yet as error:
            last = _told(error)
        _check(deadline, within_s, condition, last)
        time.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, LAST_PAUSE_S)


def _told(error: Exception) -> str:
    """A text instead of the exception, which would keep its frames' sockets open."""
    if isinstance(error, HTTPError):
        error.close()
    return repr(error)


def _check(deadline: float, within_s: float, condition: Callable[[], object], last: str) -> None:
    if time.monotonic() >= deadline:
        raise AssertionError(f"not true within {within_s:g} s: {_source(condition)}\nlast value: {last}")


def _source(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):  # a builtin's bound method, such as `event.is_set`, has none
        return repr(condition)
