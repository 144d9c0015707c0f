"""`thriftgate experiments`: compares the variants of system prompts that a team tries, by cost and quality."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli import tables
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.cli.zones import begin_of
from gateway.ledger.reports import experiments as report


@click.command(short_help="Compare variants of a team's system prompt.")
@common
@click.option("--team", required=True, help="The team.")
@click.option("--since", default="30d", show_default=True, help="Start: 2026-01-31, or 7d for the last seven days.")
def experiments(options: Context, team: str, since: str) -> None:
    """Compare the variants of a team's experiments: dollars, output tokens and users' ratings per answer.

    Each figure has a 95 % interval. The experiments are in the team's policy, under `experiments`.

    \b
    thriftgate experiments --team search
    """
    settings, begin = options.of_running(), begin_of(since)
    with open_database(settings, existing=True) as database:
        known_team(database, settings, team)
        with database.read() as connection:
            found = [report.as_object(variant) for variant in report.compare(connection, team, begin)]
    options.print({"team": team, "since": begin, "variants": found}, lambda: _show(team, found))


def _show(team: str, found: list[dict[str, Any]]) -> None:
    if not found:
        tables.sentences(f"No request of team {team} took part in an experiment.")
        return
    table = tables.Table(
        "experiment",
        "variant",
        *tables.numbers("sessions", "answers", "USD per answer", "output tokens", "rating", "rated"),
    )
    for one in found:
        cells = [_cell(one["usd_per_answer"], ".6f"), _cell(one["output_tokens"], ".0f"), _cell(one["rating"], ".2f")]
        table.add_row(
            one["experiment"], one["name"], f"{one['sessions']:,}", f"{one['answers']:,}", *cells, f"{one['rated']:,}"
        )
    tables.console(highlight=False).print(table)
    if not all(one["enough"] for one in found):
        tables.sentences(
            f"Too few sessions for a conclusion: at least {report.LEAST_SESSIONS} of each variant are needed."
        )


def _cell(figure: dict[str, float] | None, form: str) -> str:
    if figure is None:
        return "–"
    return f"{figure['value']:{form}} ({figure['low']:{form}} to {figure['high']:{form}})"
