"""`thriftgate loadtest`: runs the package `loadtests`, which exists only in a checkout of the repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli.develop.checkout import checkout_module
from gateway.cli.options import Context, common


@click.command(short_help="Measure the gateway's cost per request; needs a checkout.")
@common
@click.option(
    "--quick", is_flag=True, help="A few hundred requests a round at concurrency 16: for CI, not for published figures."
)
@click.option(
    "--cells", default="", help="Run only these cells, e.g. 1k,paced-c64,footprint; loadtests/README.md lists them."
)
@click.option(
    "--concurrency",
    multiple=True,
    type=click.IntRange(1),
    help="Parallel requests; default: 1, 16, 64 and 256. Repeatable.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help="Number of interleaved rounds, whose median is reported. Default: 5; with --quick 3.",
)
@click.option(
    "--requests", type=click.IntRange(1), help="Requests per cell and row. Default: 20000; with --quick 1500."
)
@click.option(
    "--peer",
    "peers",
    multiple=True,
    type=click.Choice(["litellm"]),
    help="Also measure this other gateway, which must be installed separately.",
)
@click.option(
    "--install-nginx/--no-install-nginx", default=None, help="Install nginx if it is missing; default: if root."
)
@click.option("--profile", is_flag=True, help="Sample a worker with py-spy after each cell.")
@click.option("--minutes", default=120.0, show_default=True, help="Start no further cell after this many minutes.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("loadtest-results"), show_default=True,
    help="Folder for loadtest.json, .txt, .png and .svg.",
)  # fmt: skip
def loadtest(context: Context, peers: tuple[str, ...], **options: Any) -> None:
    """Measure the gateway's cost per request, side by side with nginx and with direct calls.

    It starts its own gateways, so it does not accept --config or --policies. --data-dir: their data directory. Needs a
    checkout and Linux. Exit status: 1 when an answer or the ledger is wrong, or a limit is exceeded.

    \b
    thriftgate loadtest --quick --cells 1k
    thriftgate loadtest --peer litellm --profile --out results
    """
    if context.config or context.policies:
        raise click.UsageError("loadtest writes its own gateway.yaml and policies; leave --config and --policies out.")
    command = checkout_module("command", "loadtest")
    try:
        status = command.run(command.Options(peers=peers, data=context.data_dir, as_json=context.as_json, **options))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except RuntimeError as error:  # a server that was to be measured did not start
        raise click.ClickException(str(error)) from error
    sys.exit(status)
