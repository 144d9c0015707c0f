"""The alert that context changes (such as leaving out old tool outputs) do not pay for a team. The stored alert also
switches context changes off for this team."""

from __future__ import annotations

from sqlalchemy import Connection

from gateway.alerts.alert import Alert, alert
from gateway.domain.money.windows import iso
from gateway.domain.policy import Policy
from gateway.ledger.reports import holdout
from gateway.ledger.reports.holdout import Holdout
from gateway.ledger.store import cut_pauses

_WORDS = {
    "cost": "their cost relative to a twin's",
    "requests": "their number of requests",
    "failed": "their share of failed calls",
    "escalated": "their share of escalated answers",
    "bad": "their share of answers rated as bad",
}
"""Name of a figure → words for it."""


def found(connection: Connection, policy: Policy, now: float) -> list[Alert]:
    """A list with the alert that context changes (such as leaving out old tool outputs) make the sessions of the team
    worse. The list is empty if this is not certain, or if context changes are switched off already. If they were
    switched off before, only later sessions are compared."""
    team, share = policy.team, policy.context.holdout
    context = policy.context
    nothing = context.old_outputs == context.old_turns == "keep" and not context.shortens and not context.keep_alive
    if nothing or not policy.context.enabled or not share:
        return []
    since = now - holdout.WINDOW_S
    pause = cut_pauses.read(connection, since - cut_pauses.OFF_S).get(team)
    if pause is not None:
        if now < pause.end:
            return []
        since = max(since, pause.end)
    if not holdout.has_cuts(connection, team, since):
        return []
    compared = holdout.compare(connection, team, share, since, holdout.least_requests(policy.context))
    return [cuts_alert(compared, now)] if compared.loses else []


def cuts_alert(compared: Holdout, now: float) -> Alert:
    """Make the alert about one team. The alert's id stays the same within one day."""
    values = {figure.name: figure for figure in compared.figures}
    worse = "; ".join(
        f"{_WORDS[name]} is {values[name].cut:.4g} instead of {values[name].held:.4g}" for name in compared.loses
    )
    days = cut_pauses.OFF_S / 86400
    text = (
        f"Leaving out parts of prompts does not pay for team {compared.team}. In {compared.cut_sessions} sessions, "
        f"compared with {compared.held_sessions} that are held out: {worse}. It is switched off for {days:.0f} days."
    )
    facts = {**holdout.as_object(compared), "threshold": "context", "at": iso(now), "text": text}
    return alert(f"{compared.team}/context/{now // 86400:.0f}", cut_pauses.KIND, "warning", compared.team, facts)
