"""`thriftgate drain`: takes a backend, or a whole gateway, out of service without an error."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import time

import click

from gateway.backends.resilience.drain import FOLLOW_S, LONGEST_S
from gateway.cli import tables
from gateway.cli.diagnosis.backends import known
from gateway.cli.diagnosis.drained import on_drains, sentences
from gateway.cli.money.storage import open_database
from gateway.cli.options import Context, common
from gateway.cli.zones import named_moment, zones
from gateway.domain.money.windows import iso
from gateway.domain.units import parse_duration
from gateway.policy.keys import note
from gateway.settings.gateway import Settings
from gateway.settings.remedies import did_you_mean
from gateway.settings.running import running_on

LOOK_S = 0.2


@click.command(short_help="Send a backend no new requests, or end a gateway gently.")
@common
@click.argument("backend", required=False)
@click.option("--gateway", "whole", is_flag=True, help="End the gateway after its open requests are finished.")
@click.option("--undo", is_flag=True, help="Send the backend requests again.")
@click.option("--for", "lasts", default="1h", show_default=True, help="How long, at most 7d.")
@click.option("--reason", default="by hand", show_default=True, help="Shown on the page, in figures and in the log.")
def drain(context: Context, backend: str | None, whole: bool, undo: bool, lasts: str, reason: str) -> None:
    """Send BACKEND no new requests for a while, on all workers and hosts; calls in progress continue.

    Without arguments, the backends that get no requests now are listed. With --gateway, the gateway of this machine
    ends as after SIGTERM, and the command waits for the end.

    \b
    thriftgate drain small --for 30m --reason "new weights"
    thriftgate drain small --undo
    thriftgate drain --gateway
    """
    if whole and (backend or undo):
        raise click.UsageError("Give either a BACKEND or --gateway.")
    if undo and backend is None:
        raise click.UsageError("--undo needs the BACKEND.")
    settings = context.of_running(writes=True)
    if whole:
        _end(context, settings)
    elif backend is None:
        held = on_drains(settings, lambda drains: drains.listing())
        rows = [{"name": name, "until": iso(until), "reason": why} for name, (until, why) in sorted(held.items())]
        lines = sentences(held, zones(settings)(""))
        context.print(rows, "\n".join(lines) or "No backend is drained.")
    else:
        _drain(context, settings, backend, None if undo else _seconds(lasts), reason)


def _seconds(lasts: str) -> float:
    try:
        seconds = parse_duration(lasts)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from error
    if seconds > LONGEST_S:
        raise click.BadParameter(f"must be at most {LONGEST_S / 86400:g} days", param_hint="--for")
    return seconds


def _drain(context: Context, settings: Settings, name: str, seconds: float | None, reason: str) -> None:
    """Stop new requests to the backend `name` for `seconds`. If `seconds` is None, allow new requests again."""
    names = sorted(each.name for each in asyncio.run(known(settings)))
    if name not in names and seconds is not None:
        near = did_you_mean(name, names, f"there are {', '.join(names) or 'none'}")
        raise click.BadParameter(f"there is no backend called {name!r}; {near}", param_hint="BACKEND")
    actor = f"{getpass.getuser()} (command line)"
    if seconds is None:
        was = on_drains(settings, lambda drains: drains.undrain(name))
        text = f"{name} gets requests again." if was else f"{name} was not drained."
        value = {"name": name, "was_drained": was}
    else:
        until = on_drains(settings, lambda drains: drains.drain(name, seconds, reason))
        shown = named_moment(until, zones(settings)(""))
        text = (
            f"{name} gets no new requests until {shown}; all workers know within {FOLLOW_S:g} s. "
            f"Calls in progress continue. thriftgate drain {name} --undo ends this."
        )
        value = {"name": name, "drained_until": until, "reason": reason}
    with open_database(settings) as database:
        note(database, actor, "backend.undrain" if seconds is None else "backend.drain", name, reason)
    context.print(value, text)


def _end(context: Context, settings: Settings) -> None:
    gateway = running_on(settings.paths.data)
    if gateway is None:
        raise click.ClickException(f"No gateway runs on {settings.paths.data}.")
    shutdown = settings.config.shutdown
    began = time.monotonic()
    os.kill(gateway.pid, signal.SIGTERM)
    with tables.console(stderr=True).status(f"{gateway.url} takes no new requests; open ones are being finished"):
        until = began + shutdown.drain_delay + shutdown.grace_period + 30
        while (left := running_on(settings.paths.data)) is not None and left.pid == gateway.pid:
            if time.monotonic() > until:
                raise click.ClickException(f"{gateway.url} (pid {gateway.pid}) has not ended; see its log.")
            time.sleep(LOOK_S)
    took = time.monotonic() - began
    context.print(
        {"url": gateway.url, "ended": True, "seconds": round(took, 1)}, f"{gateway.url} ended in {took:.1f} s."
    )
