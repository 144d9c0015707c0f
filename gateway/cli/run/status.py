"""`thriftgate status`: shows this user's running gateways and their health."""

from __future__ import annotations

import http.client
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import click
import orjson

from gateway.cli import tables
from gateway.cli.diagnosis.drained import drained
from gateway.cli.echo import echo
from gateway.cli.options import Context, common
from gateway.cli.zones import span
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Paths, load_settings
from gateway.settings.running import RunningGateway, running, running_on

PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Status:
    """The state of one running gateway."""

    url: str
    pid: int
    workers: int
    up_s: float
    data_dir: str
    state: str
    """`ready`, `not ready`, `degraded`, or the reason why there was no answer."""
    troubles: dict[str, str]
    """Part → its state, for each part that is not ok."""
    drained: tuple[str, ...] = ()
    """The backends that get no new requests."""


@click.command()
@common
def status(context: Context) -> None:
    """Show the running gateways of this user: address, state, processes, data directory.

    With --data-dir, only the gateway of that directory is shown. Exit status: 0 when every gateway shown is ready, 1
    when a gateway is not ready or no gateway runs.

    \b
    thriftgate status
    """
    if context.data_dir is not None:
        found = running_on(context.data_dir.absolute())
        gateways = [found] if found else []
    else:
        gateways = running()
    rows = [examine(gateway) for gateway in gateways]
    context.print([asdict(row) for row in rows], lambda: _show(rows))
    if not rows or any(row.state != "ready" for row in rows):
        raise SystemExit(1)


def examine(gateway: RunningGateway) -> Status:
    """Request the health of one gateway. Takes at most twice PATIENCE_S seconds."""
    up_s = max(0.0, time.time() - gateway.started_at)
    state, troubles = _state(gateway.url)
    held = _drained(gateway)
    return Status(gateway.url, gateway.pid, len(gateway.workers), up_s, str(gateway.data), state, troubles, held)


def _drained(gateway: RunningGateway) -> tuple[str, ...]:
    accepted = Paths(gateway.data).accepted
    try:
        return tuple(sorted(drained(load_settings(accepted, gateway.data, keys=False)))) if accepted.is_file() else ()
    except ConfigError:  # written by another version
        return ()


def _state(url: str) -> tuple[str, dict[str, str]]:
    try:
        ready, _ = _get(url, "/health/ready")
        _, health = _get(url, "/health")
        troubles = {part: str(word) for part, word in health["parts"].items() if word != "ok"}
    except (OSError, http.client.HTTPException, ValueError, KeyError, AttributeError) as error:
        return f"no answer ({error or type(error).__name__})", {}
    if ready != 200:
        return "not ready", troubles
    return ("degraded" if troubles else "ready"), troubles


def _get(url: str, path: str) -> tuple[int, Any]:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, orjson.loads(answer.read())
    finally:
        connection.close()


def _show(rows: list[Status]) -> None:
    if not rows:
        echo("No gateway of this user is running; `thriftgate serve` starts one.")
        return
    figures = tables.numbers("up", "workers", "pid")
    table = tables.Table("gateway", *tables.prose("state"), *figures, "data directory")
    for row in rows:
        troubles = "".join(f"; {part}: {word}" for part, word in row.troubles.items())
        troubles += f"; drained: {', '.join(row.drained)}" if row.drained else ""
        table.add_row(row.url, row.state + troubles, span(row.up_s), str(row.workers), str(row.pid), row.data_dir)
    tables.console().print(table)
