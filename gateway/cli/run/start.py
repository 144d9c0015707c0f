"""Code for both `serve` and `up`: their common options, the start of the supervisor, and the log files."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import Context
from gateway.domain.text.visible import visible
from gateway.settings.gateway import Settings
from gateway.telemetry.log_lines import log_to

LOG, ACCESS_LOG = "gateway.log", "access.log"


def listen_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --host, --port and --workers to a command."""
    for option in (
        click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Worker processes."),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            help="Port; 0: a free port. Default: the port in gateway.yaml, else 8080.",
        ),
        click.option("--host", help="Address to listen on; default: the address in gateway.yaml, else 127.0.0.1."),
    ):
        command = option(command)
    return command


def run(settings: Settings, context: Context, host: str | None, port: int | None, workers: int, **options: Any) -> None:
    """Run the gateway until SIGTERM or SIGINT. `options`: further arguments of Supervisor."""
    # Until the supervisor handles signals itself, Ctrl-C ends the process at once: nothing is served yet, and a
    # KeyboardInterrupt inside `fork` would be lost, together with logging's lock.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gateway.supervisor.supervisor import Supervisor  # imported late, because `--help` does not need it

    Supervisor(
        settings,
        config=context.config,
        workers=workers,
        host=host or settings.config.listen.host,
        port=settings.config.listen.port if port is None else port,
        **options,
    ).run()


def protect_files() -> None:
    """Allow only this user to read the files that this process and its children create. The files contain prompts,
    answers and spend."""
    os.umask(0o077)


@dataclass(frozen=True, slots=True)
class Terminal:
    """The terminal to which this process wrote before its output was redirected: file descriptors of standard output
    and standard error."""

    out: int
    err: int

    def tell(self, line: str) -> None:
        """Print a line on the terminal's standard error, although the process's own output is redirected."""
        os.write(self.err, (visible(line, lines=True) + "\n").encode())


@contextmanager
def logs_in(folder: Path) -> Iterator[Terminal]:
    """Redirect the standard output and standard error of this process and its children to files in `folder`. Yields the
    terminal, so that lines can still be printed there."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = Terminal(os.dup(1), os.dup(2))
    try:
        for fd, name in ((1, ACCESS_LOG), (2, LOG)):
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, fd)
            os.close(file)
        log_to(sys.stderr)
        yield kept
    finally:
        for fd, copy in ((1, kept.out), (2, kept.err)):
            os.dup2(copy, fd)
            os.close(copy)
