"""`thriftgate quality learned`, `trial` and `rollback`: show the measured quality of backends, and control trials of
plans."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from gateway.cli import tables
from gateway.cli.echo import echo
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.domain.money.windows import iso
from gateway.domain.routing.class_trial import ClassTrial, TrialKey
from gateway.domain.routing.standing import Standing
from gateway.domain.units import cents
from gateway.learning.evidence import Pair, changed
from gateway.learning.plans import plan_trials
from gateway.learning.spend_cap import ALL, CapSpent, spent
from gateway.ledger.reports.formats import dollars
from gateway.ledger.store import class_trials
from gateway.ledger.store.evidence import WINDOW_S, escalations
from gateway.settings.gateway import Settings

FILE = click.Path(exists=True, path_type=Path, dir_okay=False)


@click.command("learned", short_help="Show the measured quality of backends.")
@common
@click.option("--team", help="Only backends of this team.")
def learned(context: Context, team: str | None) -> None:
    """Show the quality of each team's backends by compared answers and feedback, and the cost of comparing.

    \b
    thriftgate quality learned --team search
    measured   share of answers as good as the baseline's, with one-sided 95 % bounds
    shift      how far that is from the estimate before any measurement (the prior), in log-odds
    """
    settings = context.of_running()
    with open_database(settings, existing=True) as database, database.read() as connection:
        now = time.time()
        _, found = changed(connection, (0, 0), now)
        caps, escalated = spent(connection), escalations(connection, now - WINDOW_S)
        trials = class_trials.read(connection)
        if team is not None and team not in {*(pair[0] for pair in found), *(key.team for key in trials)}:
            known_team(database, settings, team)
    standings = sorted((pair, one) for pair, one in found.items() if team in (None, pair[0]))
    caps = [one for one in caps if team in (None, one.team)]
    classes = sorted((key, one) for key, one in trials.items() if team in (None, key.team))
    unsure = sorted((pair, one) for pair, one in escalated.items() if team in (None, pair[0]))
    values = {
        "backends": [_values(*one) for one in standings],
        "escalations": [
            {"team": pair[0], "backend": pair[1], "compared": count, "agreed": round(agreed, 4)}
            for pair, (count, agreed) in unsure
        ],
        "classes": [_class_values(*one) for one in classes],
        "spent": [_cap_values(one) for one in caps],
    }
    context.print(values, lambda: _show(standings, unsure, classes, caps))


@click.command("trial", short_help="Put a plan on trial.")
@common
@click.argument("plan", type=FILE)
def trial(context: Context, plan: Path) -> None:
    """Put PLAN, made by `router fit`, on trial: it decides on requests, but its decisions are not used.

    A running gateway switches to PLAN when PLAN is measured to be cheaper and not worse, or better and not more
    expensive. It switches back if PLAN then turns out to be worse. The measurement needs compared answers, so set
    `learning.share` in teams' policies.
    """
    from gateway.routing.strategy.plan_file import read_plan

    settings, data = context.of_running(), plan.read_bytes()
    try:
        found = read_plan(data, str(plan))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if backends := settings.config.backends:
        known = {name for backend in backends for name in (backend.name, backend.model)}
        if not known.intersection(found.models):
            raise click.ClickException(f"{plan}: no backend has any of its models: {', '.join(found.models)}.")
        if missing := [model for model in found.models if model not in known]:
            echo(f"No backend has {', '.join(missing)}; strategies that use them are ignored.", err=True)
    with open_database(settings, existing=True) as database, database.begin() as connection:
        id = plan_trials.stage(connection, data, time.time())
    context.print({"id": id, "state": "shadow"}, f"On trial: {id[:16]}")


@click.command("rollback", short_help="Return to the previous plan.")
@common
def rollback(context: Context) -> None:
    """Undo the last switch: use the previous plan again. If there was no previous plan, use the plan that gateway.yaml
    names."""
    with open_database(context.of_running(), existing=True) as database, database.begin() as connection:
        done = plan_trials.roll_back(connection, time.time(), "asked for")
    context.print({"rolled_back": done}, "Rolled back." if done else "Nothing to roll back: no plan is live.")


def plans_on_trial(settings: Settings) -> list[dict[str, Any]]:
    """The states of plans on trial, newest first. Empty if the database does not exist yet."""
    if not settings.config.ledger.database_url and not settings.paths.sqlite.exists():
        return []
    with open_database(settings, existing=True) as database, database.read() as connection:
        found = plan_trials.known(connection)
    return [{"id": one.id, "state": one.state, "since": iso(one.at), "why": one.why} for one in found]


def _values(pair: Pair, stands: Standing) -> dict[str, Any]:
    adjustment = stands.learned
    return {
        "team": pair[0],
        "backend": pair[1],
        "judged": stands.judged,
        "counting": round(adjustment.n, 1),
        "measured": round(stands.mean, 4),
        "low": round(stands.low, 4),
        "high": round(stands.high, 4),
        "target": round(stands.target, 4),
        "shift": round(adjustment.shift, 3),
        "margin": round(adjustment.margin, 3),
        "below": stands.below,
    }


def _class_values(key: TrialKey, trial: ClassTrial) -> dict[str, Any]:
    return {
        "team": key.team,
        "class": key.traffic_class,
        "backend": key.backend,
        "reference": key.reference,
        "quality": key.target,
        "share": trial.share,
        "compared": trial.compared,
        "undecided": trial.undecided,
        "measured": round(trial.mean, 4) if trial.compared else None,
        "why": trial.why,
    }


def _cap_values(one: CapSpent) -> dict[str, Any]:
    return {
        "window": one.period,
        "team": one.team or None,
        "calls": one.calls,
        "spent_usd": dollars(one.spent_pico),
        "held_usd": dollars(one.held_pico),
    }


def _show(
    standings: list[tuple[Pair, Standing]],
    unsure: list[tuple[Pair, tuple[int, float]]],
    classes: list[tuple[TrialKey, ClassTrial]],
    caps: list[CapSpent],
) -> None:
    if not standings and not classes:
        tables.sentences("No answer has been judged yet: set learning.share in a team's policy, or send feedback.")
    if standings:
        figures = tables.numbers("judged", "measured", "bounds", "promised", "shift")
        table = tables.Table("team", "backend", *figures, *tables.prose(""))
        for (team, backend), one in standings:
            state = f"below target, margin {one.learned.margin:.2f}" if one.below else ""
            table.add_row(
                team, backend, str(one.judged), f"{one.mean:.3f}", f"{one.low:.3f}–{one.high:.3f}",
                f"{one.target:.3f}", f"{one.learned.shift:+.2f}", state,
            )  # fmt: skip
        tables.console().print(table)
    for (team, backend), (count, agreed) in unsure:
        tables.sentences(
            f"Unsure answers of {backend} to {team}: {count} compared, {agreed:.0%} agree with the stronger backend."
        )
    for key, trial in classes:
        tables.sentences(
            f"Class {key.traffic_class} of {key.team}: {key.backend} serves {trial.share:.0%} of sessions; "
            f"{trial.compared} compared, {trial.undecided} undecided; {trial.why}."
        )
    for spend_cap in caps:
        whose = "all teams" if spend_cap.team == ALL else spend_cap.team
        spent = f"{spend_cap.calls} calls, {cents(spend_cap.spent_pico)} USD"
        tables.sentences(f"Comparing for {whose}, {spend_cap.period}: {spent}.")
