"""`thriftgate simulate`: shows what the calls in other software's log would have cost in this gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click
from rich.progress import Progress

from gateway.backends.fleet import Fleet
from gateway.cli import tables
from gateway.cli.diagnosis.backends import known
from gateway.cli.echo import counted, echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.simulation import kept, simulated
from gateway.cli.simulation.call import LogError, LoggedCall
from gateway.cli.simulation.reading import KINDS, read_calls
from gateway.cli.simulation.simulated import Simulation, Sums, saved_percent
from gateway.cli.teams.default_policy import note_default_policy
from gateway.domain.tenant import Key, Tenant
from gateway.domain.units import cents
from gateway.errors import GatewayError
from gateway.ledger.prices.price_book import PriceBook
from gateway.policy.load import load_policies
from gateway.routing.loading import followed, packaged
from gateway.routing.router import Router
from gateway.settings.gateway import Settings

_WORDS = {
    "repeat": "answered from cache",
    "moved": "at another model",
    "kept": "at the same model",
    "refused": "refused",
    "unknown": "not decided",
}
_MOST_MOVES = 8
_DEARER = (
    "It may cost more here, because a request for auto may cost as much as the policy's baseline. If the policy has a "
    "rule for the model in the log, give its name with --model: then no call is expected to cost more than that model."
)
_EMPTY = "The log has no answered call of a chat model."
SAMPLES = "samples"


@click.command(short_help="Price another product's log under this gateway's rules.")
@common
@click.argument("log", metavar="[LOG]", required=False, type=click.Path(path_type=Path))
@click.option("--samples", is_flag=True, help="In place of a log: the samples that --team keeps (data.store_samples).")
@click.option("--team", default="default", show_default=True, help="The team whose policy applies.")
@click.option("--model", default="auto", show_default=True, help="The model name that the apps would send.")
@click.option("--format", "kind", type=click.Choice(KINDS), help="Kind of log; default: found from its first row.")
def simulate(context: Context, log: Path | None, samples: bool, team: str, model: str, kind: str | None) -> None:
    """Show what the calls in LOG would have cost through this gateway. No backend is called.

    LOG is an export of LiteLLM's spend logs or of Langfuse's observations (JSON, JSON lines or CSV), a folder or file
    with Claude Code's transcripts, or one JSON object per call with the chat request and its `usage`. The backends and
    prices are those of gateway.yaml.

    With --samples, the calls are those of the team's kept samples, with their costs in the ledger.

    \b
    thriftgate simulate spend-logs.json --team search
    thriftgate simulate ~/.claude/projects
    thriftgate simulate --samples --team search
    """
    if (log is None) is not samples:
        raise click.UsageError("give either LOG or --samples.")
    settings = context.of_running()
    try:
        with tables.working(f"reading {log or SAMPLES}"):
            kind, calls = read_calls(log, kind) if log else (SAMPLES, _kept(settings, team))
        note_default_policy(context, settings, team)
        policy, epoch = load_policies(settings.policies, settings.config.ceilings).find(team)
        backends = asyncio.run(known(settings))
    except OSError as error:
        raise click.ClickException(f"{error.filename}: cannot be read: {error.strerror}") from error
    except (LogError, GatewayError) as error:
        raise click.ClickException(str(error)) from error
    if not backends:
        raise click.ClickException("There is no backend to compare with; `thriftgate init` writes a gateway.yaml.")
    prices = PriceBook.of(settings)
    fleet = Fleet([prices.complete(backend) for backend in backends])
    router = Router(packaged, prices, fleet, fleet.backends, plans=followed(settings.config.routing.artefact))
    tenant = Tenant(Key("simulate", team), policy, epoch, settings.config.closed_to(team))
    with Progress(console=tables.console(stderr=True), transient=True) as progress:
        bar = progress.add_task(counted(len(calls), "call"), total=len(calls))
        run = Simulation(router, prices, prices.listed, tenant, model)
        simulated.simulate(run, calls, lambda: progress.advance(bar))
    context.print(run.as_object(kind), lambda: _show(run, kind))


def _kept(settings: Settings, team: str) -> list[LoggedCall]:
    with open_database(settings, existing=True) as database:
        known_team(database, settings, team)
        with database.read() as connection:
            return kept.read(connection, team)


def _show(run: Simulation, kind: str) -> None:
    if not run.total.calls and not run.unpriced:
        echo(f"Team {run.tenant.team} keeps no samples." if kind == SAMPLES else _EMPTY)
        return
    table = tables.Table("calls", *tables.numbers("number", "USD in the log", "USD here"))
    for name, sums in run.kinds.items():
        if sums.calls:
            table.add_row(_WORDS[name], str(sums.calls), cents(sums.now), _range(sums))
    total = run.total
    table.add_row("all", str(total.calls), cents(total.now), _range(total))
    tables.console().print(table)
    tables.sentences(*_sentences(run, kind))


def _sentences(run: Simulation, kind: str) -> Iterator[str]:
    if (saved := saved_percent(run.total)) is not None:
        dearer = saved[1] < 0
        low, high = (-saved[1], -saved[0]) if dearer else saved
        much = f"{low:.1f}%" if low == high else f"{low:.1f}% to {high:.1f}%"
        source = "kept samples" if kind == SAMPLES else f"{kind} log"
        what = f"Cost: {much} more than in the {source}" if dearer else f"Saved: {much} of the {source}"
        yield f"{what}, by the policy of team {run.tenant.team}."
        if saved[0] < 0 and run.model == "auto":
            yield _DEARER
    for (old, new), calls in run.moves.most_common(_MOST_MOVES):
        yield f"Moves from {old} to {new}: {counted(calls, 'call')}."
    for why, calls in run.unknown.items():
        yield f"Not decided, with the cost in the log: {counted(calls, 'call')}; {why}."
    for name, calls in run.unpriced.items():
        yield f"In no sum: {counted(calls, 'call')} of {name}; neither the log nor the price list has a price."
    if kind == SAMPLES:
        yield "Samples are the requests that were compared in the background, so they are only a part of the traffic."
    yield from run.method


def _range(sums: Sums) -> str:
    return cents(sums.low) if sums.low == sums.high else f"{cents(sums.low)} to {cents(sums.high)}"
