"""`thriftgate up`: starts the gateway for use at a terminal. Its log and access log go to files."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import click

from gateway.backends.reachability import reach_all
from gateway.cli.diagnosis.backends import NONE, known
from gateway.cli.diagnosis.reached import mark
from gateway.cli.options import Context, common
from gateway.cli.run.start import LOG, listen_options, logs_in, protect_files, run
from gateway.settings.gateway import Settings


@click.command()
@common
@listen_options
def up(context: Context, host: str | None, port: int | None, workers: int) -> None:
    """Start the gateway and show its backends, its page and the next commands. Ctrl-C ends it.

    It serves as `thriftgate serve` does, but its log and access log go to gateway.log and access.log in the data
    directory. `thriftgate logs -f` in another terminal shows the requests.

    \b
    thriftgate up --policies policies
    """
    protect_files()
    settings = context.settings(keys=True)
    data = settings.paths.data
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise click.ClickException(
            f"{data}: cannot be used as data directory ({error.strerror}); give another --data-dir."
        ) from error
    with logs_in(settings.paths.data) as terminal:
        tell = terminal.tell
        tell(f"Starting on {settings.paths.data} …")
        at: list[str] = []

        def announce(line: str) -> None:
            if line.startswith("listening on "):
                at.append(line.removeprefix("listening on "))
            else:
                tell(line)

        def ready() -> None:
            threading.Thread(target=_welcome, args=(settings, at, tell), daemon=True).start()

        run(settings, context, host, port, workers, announce=announce, on_ready=ready)
        tell("Ended.")


def _welcome(settings: Settings, at: list[str], tell: Callable[[str], None]) -> None:
    for line in lines(settings, at[-1] if at else ""):
        tell(line)


def lines(settings: Settings, url: str) -> Iterator[str]:
    """The lines that are printed when the gateway answers: its backends, the address of its page, and the next
    commands. Each backend is asked for its list of models."""
    yield f"Listening on {url}/v1, page {url}/dashboard"
    reached = asyncio.run(_reached(settings))
    if not reached:
        yield NONE
    yield from (f"  {line}" for line in reached)
    yield "Next:"
    yield "  thriftgate connect claude-code --team NAME   a key and settings of a client"
    yield "  thriftgate keys create --team NAME           a key for a team"
    yield "  thriftgate logs -f                           watch requests"
    yield f"Log: {settings.paths.data / LOG}. Ctrl-C ends the gateway."


async def _reached(settings: Settings) -> list[str]:
    return [mark(each) for each in await reach_all(await known(settings))]
