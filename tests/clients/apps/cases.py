"""What every Python client here is made of: where the gateway is, and cases that run one after the other.

The parent sets the environment; the report is one JSON line per case on standard output.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import secrets
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

BASE = os.environ["CLIENT_BASE"]
"""Of Anthropic's SDKs; OpenAI's take it with /v1."""
V1 = f"{BASE}/v1"
KEY = os.environ["CLIENT_KEY"]
MODEL = os.environ["CLIENT_MODEL"]
CLAUDE_MODEL = os.environ["CLIENT_CLAUDE_MODEL"]
"""The same under a name of Anthropic's, for clients that know their models by name."""
EMBEDDER = os.environ["CLIENT_EMBEDDER"]
LACKS = os.environ["CLIENT_LACKS"].split()
"""What the upstream of the model cannot take, so that the gateway refuses it."""
SPENT_KEY = os.environ["CLIENT_SPENT_KEY"]
"""Of a team whose budget is used up: every request is a 429."""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG."""

_cases: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    """Register a case, a plain function or a coroutine function; it fails by raising."""
    _cases[function.__name__] = function
    return function


def token() -> str:
    """What a prompt holds and its answer must repeat."""
    return f"tok-{secrets.token_hex(5)}"


def raised(kind: type[BaseException], call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """The error of class `kind` that `call` ends with."""
    try:
        call(*args, **more)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


async def raised_later(kind: type[BaseException], waiting: Awaitable[Any]) -> Any:
    """The error of class `kind` that `waiting` ends with."""
    try:
        await waiting
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def main() -> None:
    """Run all cases, or those named on the command line; those that wait for I/O share one loop."""
    asyncio.run(_run(sys.argv[1:] or list(_cases)))


async def _run(names: list[str]) -> None:
    for name in names:
        began, why = time.monotonic(), ""
        try:
            outcome = _cases[name]()
            if inspect.isawaitable(outcome):
                await outcome
        except Exception:
            why = traceback.format_exc(limit=-8)[-4000:]
        print(json.dumps({"case": name, "why": why, "seconds": round(time.monotonic() - began, 2)}), flush=True)
