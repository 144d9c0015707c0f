"""Finds the backends that get no new requests at present. Gateways with the same state server share this list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import tzinfo
from typing import TypeVar

import click

from gateway.backends.resilience.drain import BackendDrains
from gateway.cli.zones import named_moment
from gateway.errors import StateUnavailable
from gateway.settings.gateway import Settings
from gateway.state.redis import own_socket
from gateway.state.redis.connection import State

Result = TypeVar("Result")


Drained = Mapping[str, tuple[float, str]]
"""Backend → (end of its drain in Unix seconds, reason)."""


def drained(settings: Settings) -> Drained:
    """The drained backends, which get no new requests. Empty if no gateway runs."""
    try:
        return on_drains(settings, lambda drains: drains.listing())
    except click.ClickException:
        return {}


def sentences(held: Drained, zone: tzinfo) -> list[str]:
    """A line about each backend in `held`, the drained backends. Times are in the given zone."""
    return [
        f"{name}: no new requests until {named_moment(until, zone)} ({why})"
        for name, (until, why) in sorted(held.items())
    ]


def on_drains(settings: Settings, work: Callable[[BackendDrains], Awaitable[Result]]) -> Result:
    """Call `work` with the drains that the gateways of this state server share. Raises ClickException."""

    async def run() -> Result:
        state = State(settings.config.state.redis_url or own_socket.url(settings.paths.socket), timeout_s=2.0)
        try:
            await state.open()
            return await work(BackendDrains(state))
        except StateUnavailable as error:
            raise click.ClickException(
                f"The gateway's state cannot be reached ({error}); is the gateway running on this --data-dir?"
            ) from error
        finally:
            await state.aclose()

    return asyncio.run(run())
