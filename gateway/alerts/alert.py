"""One alert and its severity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gateway.domain.policy import Notify, Policy, Severity

Kind = Literal["threshold", "forecast", "spend_rate", "unpriced", "zero_cost", "hit_rate", "quality", "lost_host"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True, slots=True)
class Alert:
    """What happened in one window of one budget or, for an anomaly, of one team."""

    id: str
    """The same for every process that notices, whenever it does."""
    kind: Kind
    severity: Severity
    payload: dict[str, Any]
    """The payload for receivers, JSON values: `text` for people, the rest for programs."""

    def addressed(self, target: str) -> str:
        """The id of its copy for one receiver."""
        return addressed(self.id, target)


def alert(id: str, kind: Kind, severity: Severity, team: str, facts: dict[str, Any]) -> Alert:
    """With what every payload has."""
    return Alert(id, kind, severity, {"team": team, "kind": kind, "severity": severity, **facts})


def addressed(id: str, target: str) -> str:
    return f"{id}/{digest(target, 8)}" if target else id


def digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def targets(receivers: Iterable[Notify], severity: Severity) -> list[str]:
    """Those that want to hear of what is so severe, each once."""
    reached = _SEVERITIES.index(severity)
    return list(dict.fromkeys(each.target for each in receivers if _SEVERITIES.index(each.severity) <= reached))


def receivers(policy: Policy) -> list[Notify]:
    """All receivers that a policy names."""
    named = [*policy.alerts.notify, *(each for budget in policy.budget for each in budget.notify)]
    return [*named, *policy.alerts.escalate_to]
