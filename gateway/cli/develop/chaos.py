"""`thriftgate dev chaos`: runs `loadtests.chaos` or `loadtests.matrix`, which exist only in a checkout of the
repository."""

from __future__ import annotations

import sys
from typing import Any

import click

from gateway.cli.develop.checkout import checkout_module
from gateway.cli.options import Context, common


@click.command(short_help="Kill and freeze a gateway under load; check its ledger.")
@common
@click.option("--requests", type=click.IntRange(1), help="Least number of requests; default: 20000.")
@click.option("--kills", type=click.IntRange(0), help="Kills of each part; default: 5.")
@click.option("--freezes", type=click.IntRange(0), help="Freezes of each part; default: 2.")
@click.option("--workers", type=click.IntRange(1), help="Worker processes; default: 2.")
@click.option(
    "--database", type=click.Choice(["postgres", "sqlite"]), help="Default: postgres, a server started for the run."
)
@click.option(
    "--seed", type=int, help="Determines requests, kills and freezes; default: a new one each time, which is printed."
)
@click.option("--quick", is_flag=True, help="600 requests, one kill of each part, SQLite.")
@click.option(
    "--matrix",
    is_flag=False,
    flag_value="all",
    metavar="[CELLS]",
    help="Instead kill, freeze, slow down and fill up each part in turn; CELLS, such as state,disk:full, selects some.",
)
def chaos(context: Context, quick: bool, matrix: str | None, **options: Any) -> None:
    """Kill and freeze a gateway under load, then compare clients, provider and ledger attempt by attempt.

    It starts its own gateway, so it does not accept --config or --policies. --data-dir: a new folder for the files.
    Needs a checkout and Linux. Exit status: 1 when a row is missing, duplicated or wrong, or when a request hung.

    \b
    thriftgate dev chaos --quick
    thriftgate dev chaos --seed 7
    thriftgate dev chaos --matrix
    """
    if context.config or context.policies:
        raise click.UsageError("chaos writes its own gateway.yaml and policies; leave --config and --policies out.")
    if matrix is not None:
        if quick or context.as_json or any(value is not None for name, value in options.items() if name != "workers"):
            raise click.UsageError("--matrix can be combined only with --workers and --data-dir.")
        cells = [f"--cells={matrix}"] if matrix != "all" else []
        workers = [f"--workers={options['workers']}"] if options["workers"] else []
        keep = [f"--keep={context.data_dir}"] if context.data_dir else []
        sys.exit(checkout_module("matrix", "chaos").main([*cells, *workers, *keep]))
    words = [f"--{name}={value}" for name, value in options.items() if value is not None]
    words += ["--quick"] if quick else []
    words += ["--json"] if context.as_json else []
    words += [f"--keep={context.data_dir}"] if context.data_dir else []
    sys.exit(checkout_module("chaos", "chaos").main(words))
