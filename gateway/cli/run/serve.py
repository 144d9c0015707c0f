"""`thriftgate serve`: starts the gateway. With --demo, it also prepares the tour."""

from __future__ import annotations

import secrets
import sys

import click

from gateway.cli.echo import echo
from gateway.cli.options import Context, common
from gateway.cli.run.start import listen_options, logs_in, protect_files, run
from gateway.telemetry.log_lines import log_to


@click.command()
@common
@listen_options
@click.option("--demo", is_flag=True, help="Add a simulated large tier if no stronger one is found, and run the tour.")
def serve(context: Context, host: str | None, port: int | None, workers: int, demo: bool) -> None:
    """Start the gateway. Ctrl-C ends it after open streams have finished.

    Without a gateway.yaml it uses what it finds on this machine: provider keys in the environment, OpenAI-compatible
    servers on the usual local ports, and the packaged local model. The state server is an embedded Valkey; the ledger
    is an SQLite database in --data-dir.

    The log goes to standard error, and one line for each request to standard output: JSON, or on a terminal a short
    line for people. With --demo, both go to gateway.log and access.log in the data directory.

    \b
    thriftgate serve --port 8080 --policies policies
    """
    protect_files()
    settings = context.settings(keys=True)
    if not demo:
        log_to(sys.stderr)
        run(settings, context, host, port, workers, announce=lambda line: echo(f"  {line}", err=True))
        return
    from gateway.cli.run.welcome import Welcome, history_team, prepared  # only the tour needs it

    team = history_team(settings)
    if team is None:
        team = f"demo-{secrets.token_hex(3)}"
        settings = prepared(settings, team)
    with logs_in(settings.paths.data) as terminal:
        terminal.tell("Starting …")
        options = Welcome(settings, context.config, team, terminal).options()
        run(settings, context, host, port, workers, simulate=True, **options)
        terminal.tell("Ended.")
