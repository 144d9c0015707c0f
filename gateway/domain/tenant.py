"""Who pays: a team, the key it came with and the policy it came under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gateway.domain.policy import Policy
from gateway.domain.request import Controls

Scope = Literal["inference", "usage", "admin"]


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key; the secret itself is never kept."""

    id: str
    team: str
    name: str = ""
    scopes: frozenset[str] = frozenset({"inference"})
    expires_at: float | None = None
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Tenant:
    key: Key
    policy: Policy
    epoch: str = ""
    """Fingerprint of the policy: a changed policy never answers from the old one's cache."""

    @property
    def team(self) -> str:
        return self.key.team

    @property
    def organisation(self) -> str:
        return self.policy.organisation

    def batch(self, controls: Controls) -> bool:
        """Does a request with these controls give way to interactive ones? It may lower itself, not raise."""
        return controls.priority == "batch" or self.policy.limits.priority == "batch"
