"""An alert, its severity, and the receivers to which it is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gateway.domain.notify import Notify, Severity
from gateway.domain.policy import Policy

Kind = Literal[
    "threshold",
    "forecast",
    "spend_rate",
    "unpriced",
    "zero_cost",
    "hit_rate",
    "quality",
    "lost_host",
    "report",
    "tool_loop",
    "slo",
    "context",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. It is about a budget in one window, a team, a backend, a host or an agent's session."""

    id: str
    """The alert's id. Every process that detects the same event computes the same id."""
    kind: Kind
    severity: Severity
    payload: dict[str, Any]
    """JSON values that are sent to receivers: `text` is for people, the other fields are for programs."""

    def addressed(self, target: str) -> str:
        """The id with which this alert is delivered to the receiver `target`. If `target` is empty, this is the id of
        the alert itself.
        """
        return addressed(self.id, target)


def alert(id: str, kind: Kind, severity: Severity, team: str, facts: dict[str, Any]) -> Alert:
    """Make an alert. Its payload has the fields `team`, `kind` and `severity`, and all fields of `facts`."""
    return Alert(id, kind, severity, {"team": team, "kind": kind, "severity": severity, **facts})


def addressed(id: str, target: str) -> str:
    return f"{id}/{digest(target, 8)}" if target else id


def digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def targets(receivers: Iterable[Notify], severity: Severity) -> list[str]:
    """The targets of all receivers that accept alerts of this `severity`, each target once."""
    reached = _SEVERITIES.index(severity)
    return list(dict.fromkeys(each.target for each in receivers if _SEVERITIES.index(each.severity) <= reached))


def receivers(policy: Policy) -> list[Notify]:
    """All receivers named in a policy."""
    named = [*policy.alerts.notify, *(each for budget in policy.budget for each in budget.notify)]
    return [*named, *policy.alerts.escalate_to, *policy.alerts.weekly_report]
