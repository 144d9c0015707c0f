"""`thriftgate chaos`: hands over to `loadtests.chaos` or `loadtests.matrix`, which only a checkout has."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import Context, common


@click.command()
@common
@click.option("--requests", type=click.IntRange(1), help="At least so many; default: 20000.")
@click.option("--kills", type=click.IntRange(0), help="Of each victim; default: 5.")
@click.option("--freezes", type=click.IntRange(0), help="Of each victim; default: 2.")
@click.option("--workers", type=click.IntRange(1), help="Default: 2.")
@click.option("--database", type=click.Choice(["postgres", "sqlite"]), help="Default: postgres, one of its own.")
@click.option("--seed", type=int, help="Decides requests and blows; default: another each time, printed.")
@click.option("--quick", is_flag=True, help="600 requests, a kill each, SQLite.")
@click.option(
    "--matrix",
    is_flag=False,
    flag_value="all",
    metavar="[CELLS]",
    help="Instead: every part killed, frozen, slow and full in turn; CELLS such as state,disk:full chooses.",
)
def chaos(context: Context, quick: bool, matrix: str | None, **options: Any) -> None:
    """Kill and freeze a gateway under load, then compare clients, provider and ledger attempt by attempt.

    It starts a gateway of its own with its own gateway.yaml and policies, so it takes neither --config nor --policies;
    --data-dir is a new folder that keeps what the run leaves behind. Needs a checkout and Linux. Exit status: 1 when a
    row is missing, is there twice, or says something else than client and provider saw, or when a request hung.

    \b
    thriftgate chaos --quick
    thriftgate chaos --seed 7
    thriftgate chaos --matrix
    """
    if context.config or context.policies:
        raise click.UsageError("chaos writes its own gateway.yaml and policies; leave --config and --policies out.")
    if matrix is not None:
        if quick or context.as_json or any(value is not None for name, value in options.items() if name != "workers"):
            raise click.UsageError("--matrix takes --workers and --data-dir alone.")
        cells = [f"--cells={matrix}"] if matrix != "all" else []
        workers = [f"--workers={options['workers']}"] if options["workers"] else []
        keep = [f"--keep={context.data_dir}"] if context.data_dir else []
        sys.exit(_module("matrix").main([*cells, *workers, *keep]))
    words = [f"--{name}={value}" for name, value in options.items() if value is not None]
    words += ["--quick"] if quick else []
    words += ["--json"] if context.as_json else []
    words += [f"--keep={context.data_dir}"] if context.data_dir else []
    sys.exit(_module("chaos").main(words))


def _module(name: str) -> Any:
    checkout = Path(__file__).parents[3]
    if not (checkout / "loadtests" / "chaos.py").is_file():
        raise click.ClickException("chaos needs a checkout: the package loadtests is not installed with thriftgate.")
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return importlib.import_module(f"loadtests.{name}")
