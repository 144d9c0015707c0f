"""`thriftgate context report`: shows how much leaving out old outputs saved, compared with sessions in which nothing is
left out."""

from __future__ import annotations

import time
from typing import Any

import click

from gateway.cli import tables
from gateway.cli.money.storage import open_database
from gateway.cli.money.teams import known_team
from gateway.cli.options import Context, common
from gateway.domain.money.windows import iso
from gateway.domain.record import KEEP_ALIVE, SUMMARY
from gateway.domain.units import pico_to_usd
from gateway.ledger.reports import holdout
from gateway.ledger.reports.holdout import Figure
from gateway.ledger.store import cut_pauses
from gateway.ledger.store.cut_pauses import CutPause
from gateway.policy.load import load_policies

_WORDS = {
    "cost": "cost, relative to a twin's",
    "requests": "requests of a session",
    "failed": "failed calls per request",
    "escalated": "escalated answers per request",
    "bad": "answers rated as bad, per request",
}


@click.command(short_help="Show what leaving out old outputs saved, with intervals.")
@common
@click.option("--team", required=True, help="The team.")
@click.option("--days", type=click.IntRange(1, 365), default=30, show_default=True, help="Length of the measured time.")
def report(options: Context, team: str, days: int) -> None:
    """Show what leaving out old tool outputs saved for a team.

    The sessions that are held out (`context.holdout` of the policy) are compared with the others. The report also shows
    whether the others had more errors, escalations, bad ratings or requests, and whether leaving out is switched off.

    \b
    thriftgate context report --team search
    """
    settings, now = options.of_running(), time.time()
    policy, _ = load_policies(settings.policies, settings.config.ceilings).find(team)
    since, least = now - days * 86400.0, holdout.least_requests(policy.context)
    with open_database(settings, existing=True) as database:
        known_team(database, settings, team)
        with database.read() as connection:
            pause = cut_pauses.read(connection, since - cut_pauses.OFF_S).get(team)
            if pause is not None and pause.end < now:
                since = max(since, pause.end)  # while it was switched off, all sessions were alike
            found = holdout.compare(connection, team, policy.context.holdout, since, least)
            kept = holdout.calls(connection, team, since, KEEP_ALIVE)
            noted = holdout.calls(connection, team, since, SUMMARY)
    values = {
        "team": team,
        "since": since,
        "mode": policy.context.old_outputs,
        "long_documents": policy.context.long_documents,
        "unused_tools": policy.context.unused_tools,
        "keep_alive": {"on": policy.context.keep_alive, "calls": kept[0], "usd": pico_to_usd(kept[1])},
        "old_turns": {"mode": policy.context.old_turns, "calls": noted[0], "usd": pico_to_usd(noted[1])},
        "least_requests": least,
        "holdout": policy.context.holdout,
        **holdout.as_object(found),
        "switched_off": None if pause is None else {"since": pause.begin, "until": pause.end, "why": pause.why},
    }
    options.print(values, lambda: _show(values, found.figures, pause, now))


def _show(values: dict[str, Any], figures: tuple[Figure, ...], pause: CutPause | None, now: float) -> None:
    held, others = values["held_out_sessions"], values["other_sessions"]
    tables.sentences(
        f"Sessions of team {values['team']} with at least {values['least_requests']} requests: {held} held out, "
        f"{others} others."
    )
    if figures:
        table = tables.Table("figure", *tables.numbers("held out", "others", "change", "95 % interval"))
        for figure in figures:
            table.add_row(_WORDS[figure.name], f"{figure.held:.4g}", f"{figure.cut:.4g}", *_change(figure))
        tables.console(highlight=False).print(table)
    if (saved := values["saved_usd"]) is not None:
        low, high = (f"${saved[name]:,.2f}" for name in ("low", "high"))
        tables.sentences(f"Saved in the other sessions: ${saved['value']:,.2f} (95 % interval {low} to {high}).")
    if (kept := values["keep_alive"])["calls"]:
        tables.sentences(f"Prompts kept in caches during pauses: {kept['calls']} calls, ${kept['usd']:,.4f}.")
    if (noted := values["old_turns"])["calls"]:
        tables.sentences(f"Notes about old turns: {noted['calls']} calls, ${noted['usd']:,.4f}.")
    if not values["enough"]:
        tables.sentences(f"Too few sessions for a decision: at least {holdout.LEAST_SESSIONS} of each kind are needed.")
    if pause is not None:
        verb = "is switched off" if now < pause.end else "was switched off"
        tables.sentences(f"Leaving out {verb} until {iso(pause.end)}. {pause.why}")


def _change(figure: Figure) -> tuple[str, str]:
    if figure.change is None or figure.low is None or figure.high is None:
        return "–", "–"
    what = "saved " if figure.name == "cost" else ""
    return f"{what}{figure.change:+.2%}", f"{figure.low:+.2%} to {figure.high:+.2%}"
