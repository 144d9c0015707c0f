"""`thriftgate up`: starts the gateway for people. Its log and access log go to files."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from gateway.backends.reachability import reach_all
from gateway.cli.diagnosis.backends import NONE, known, mark
from gateway.cli.options import Context, common
from gateway.domain.text.visible import visible
from gateway.settings.gateway import Settings
from gateway.telemetry.log_lines import log_to

LOG, ACCESS_LOG = "gateway.log", "access.log"


@click.command()
@common
@click.option("--host", help="Address to listen on; default: the address in gateway.yaml, else 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0: a free port. Default: the port in gateway.yaml, else 8080."
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Worker processes.")
def up(context: Context, host: str | None, port: int | None, workers: int) -> None:
    """Start the gateway and show its backends, its page and the next commands. Ctrl-C ends it.

    It serves as `thriftgate serve` does, but its log and access log go to gateway.log and access.log in the data
    directory. `thriftgate logs -f` in another terminal shows the requests.

    \b
    thriftgate up --policies policies
    """
    from gateway.supervisor.supervisor import Supervisor

    os.umask(0o077)  # for this process and its children, since their files contain prompts, answers and spend
    settings = context.settings(keys=True)
    settings.paths.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _logs_in(settings.paths.data) as tell:
        tell(f"Starting on {settings.paths.data} …")
        at: list[str] = []

        def announce(line: str) -> None:
            if line.startswith("listening on "):
                at.append(line.removeprefix("listening on "))
            else:
                tell(line)

        def ready() -> None:
            threading.Thread(target=_welcome, args=(settings, at, tell), daemon=True).start()

        Supervisor(
            settings,
            config=context.config,
            workers=workers,
            host=host or settings.config.listen.host,
            port=settings.config.listen.port if port is None else port,
            announce=announce,
            on_ready=ready,
        ).run()
        tell("Ended.")


@contextmanager
def _logs_in(folder: Path) -> Iterator[Callable[[str], None]]:
    """Redirect standard output and standard error of this process and its children to files in `folder`. Yields a
    function that still prints on the terminal."""
    kept = [os.dup(1), os.dup(2)]

    def tell(line: str) -> None:
        os.write(kept[1], (visible(line, lines=True) + "\n").encode())

    try:
        for fd, name in ((1, ACCESS_LOG), (2, LOG)):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, fd)
            os.close(file)
        log_to(sys.stderr)
        yield tell
    finally:
        for fd, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, fd)
            os.close(copy)


def _welcome(settings: Settings, at: list[str], tell: Callable[[str], None]) -> None:
    for line in lines(settings, at[-1] if at else ""):
        tell(line)


def lines(settings: Settings, url: str) -> Iterator[str]:
    """The lines to print when the gateway answers: its backends, its page and the next commands. Each backend is asked
    for its list of models."""
    yield f"Listening on {url}/v1, page {url}/dashboard"
    reached = asyncio.run(_reached(settings))
    if not reached:
        yield NONE
    yield from (f"  {line}" for line in reached)
    yield "Next:"
    yield "  thriftgate connect claude-code       a key and the settings of a client"
    yield "  thriftgate keys create --team NAME   a key for a team"
    yield "  thriftgate logs -f                   watch requests"
    yield f"Log: {settings.paths.data / LOG}. Ctrl-C ends the gateway."


async def _reached(settings: Settings) -> list[str]:
    return [mark(each) for each in await reach_all(await known(settings))]
