"""`thriftgate breakeven`: shows whether an own machine would have been cheaper than the API."""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import get_args

import click

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.domain.backend import Billing
from gateway.domain.units import cents, parse_share, parse_usd, usd_to_pico
from gateway.ledger.prices.throughput import measured
from gateway.ledger.reports import breakeven as ledger
from gateway.ledger.reports.period import parse_when
from gateway.ledger.store.sums import snapshot


@click.command()
@common
@click.option("--since", default="30d", show_default=True, help="Start: 2026-01-31, or 7d for the last seven days.")
@click.option("--team", help="Only this team's load.")
@click.option("--model", default="", help="Only hosted models whose name contains this text.")
@click.option("--size", default="", help="Only machines for a model of this size, such as 8b or 70b.")
@click.option(
    "--billing",
    type=click.Choice(get_args(Billing)),
    default="on_demand",
    show_default=True,
    help="Kind of prices to use from the packaged table.",
)
@click.option(
    "--hour-usd", help="USD per hour of a machine of your own, which is compared instead of the packaged table."
)
@click.option(
    "--tokens-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="With --hour-usd: throughput of that machine.",
)
@click.option(
    "--student",
    metavar="SHARE",
    help="Share of the load that a tuned model of your own serves as well, such as 80%: only this share is compared.",
)
@click.option("--training-usd", default="0", show_default=True, help="With --student: what training it cost, once.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Also write a plot (PNG, SVG); needs matplotlib."
)
def breakeven(
    context: Context, since: str, team: str | None, model: str, size: str, billing: str,
    hour_usd: str | None, tokens_per_second: float | None, student: str | None, training_usd: str, plot: Path | None,
) -> None:  # fmt: skip
    """Compare the cost of self-hosting with the API's, for the load in this ledger.

    For each hosted model and machine, shows the utilisation above which the machine is cheaper, the utilisation by this
    load, and the machine's cost. The machines are those with machine_hour_usd in gateway.yaml, and a packaged table of
    GPUs.

    \b
    thriftgate breakeven --since 30d
    thriftgate breakeven --model gpt-4o --hour-usd 2.10 --tokens-per-second 1800
    thriftgate breakeven --model gpt-4o --size 8b --student 80% --training-usd 120

    With --student, also shows after how many days the student has saved what its training cost. `quality compare` and
    `quality learned` measure the share to give to --student.
    """
    now = time.time()
    try:
        begin = parse_when(since, now)
        machines = _given(hour_usd, tokens_per_second)
        tuned = _student(student, training_usd)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    settings = context.of_running()
    with open_database(settings, existing=True) as database, snapshot(database) as connection:
        if team is not None:
            known_team(database, settings, team)
        found = ledger.loads(connection, begin, now, team=team, pattern=model)
        found = found if tuned is None else [tuned.of(load) for load in found]
        backends = settings.config.backends or ()
        own = list(ledger.owned(backends, measured(connection, backends, now)))
    if not machines:
        machines = [one for one in (*own, *ledger.hardware(billing)) if not size or one.size == size]
    rows = ledger.compare(found, machines, begin, now)
    if plot is not None and rows:
        _plot(rows, plot)
    context.print(ledger.as_object(rows, tuned), lambda: _show(rows, tuned))


def _student(share: str | None, training_usd: str) -> ledger.Student | None:
    """The student model that --student and --training-usd describe. Raises ValueError for an invalid number, or for a
    share of 0."""
    training = usd_to_pico(parse_usd(training_usd))
    if share is None:
        if training:
            raise ValueError("--training-usd needs --student")
        return None
    part = Decimal(str(parse_share(share)))
    if not part:
        raise ValueError("--student must be above 0%")
    return ledger.Student(part, training)


def _given(hour_usd: str | None, tokens_per_second: float | None) -> list[ledger.Machine]:
    """A list with the machine that --hour-usd and --tokens-per-second describe; empty if neither is given. Raises
    ValueError for an invalid number, or if only one of them is given."""
    if hour_usd is None and tokens_per_second is None:
        return []
    if hour_usd is None or tokens_per_second is None:
        raise ValueError("give both --hour-usd and --tokens-per-second")
    price = parse_usd(hour_usd)
    return [ledger.Machine("given", "", usd_to_pico(price), Decimal(str(tokens_per_second)), "command line")]


def _show(rows: Sequence[ledger.Comparison], student: ledger.Student | None) -> None:
    if not rows:
        echo("No hosted model cost anything in that time, or no machine fits.")
        return
    figures = tables.numbers("API USD", "own USD", "machines", "needed", "used", "cheaper")
    last = tables.numbers("days") if student else []
    table = tables.Table("model", "machine", "size", *figures, *last)
    for one in rows:
        table.add_row(
            one.load.model, one.machine.name, one.machine.size, cents(one.load.cost_pico), cents(one.self_host_pico),
            str(one.machines), tables.percent(one.needed) if one.needed <= 1 else "never",
            tables.percent(one.utilisation),
            "own" if one.pays else "API", *([_days(student.days_until_paid(one))] if student else []),
        )  # fmt: skip
    tables.console().print(table)
    if student:
        days = "Days: until the student has saved what its training cost, at the pace of this period."
        tables.sentences(f"Only {student.share:.0%} of each load is compared.", days)
    tables.sentences(*ledger.METHOD, *sorted({f"{one.machine.name}: {one.machine.source}" for one in rows}))


def _days(days: Decimal | None) -> str:
    return "never" if days is None else f"{days:.1f}"


def _plot(rows: Sequence[ledger.Comparison], path: Path) -> None:
    """Plot the cost of a million tokens against utilisation, with a curve for each machine and a horizontal line for
    each API price."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise click.ClickException("--plot needs matplotlib: pip install 'thriftgate[loadtest]'.") from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    shares = [share / 100 for share in range(1, 101)]
    for machine in dict.fromkeys(one.machine for one in rows):
        full = float(machine.hour_pico / (machine.tokens_per_second * 3600)) / 10**6
        axes.plot(
            [100 * share for share in shares],
            [full / share for share in shares],
            label=f"{machine.name} {machine.size}",
        )
    for load in dict.fromkeys(one.load for one in rows):
        axes.axhline(float(load.cost_pico / load.tokens) / 10**6, linestyle="--", color="grey")
        axes.annotate(load.model, (100, float(load.cost_pico / load.tokens) / 10**6), ha="right", va="bottom")
    axes.set(yscale="log", xlabel="utilisation of the machine, %", ylabel="USD per 1M tokens (input counts a tenth)")
    axes.legend()
    figure.savefig(path)
