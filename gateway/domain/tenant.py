"""A tenant: team, key and policy of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gateway.domain.access import Access, access
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
    lineage: str = ""
    """Id of the first key of the chain that `keys rotate` made, its own where it was never rotated. Spend, limits and
    ownership belong to the lineage, so that a new secret changes none of them."""
    allowed_models: frozenset[str] | None = None
    """Besides the policy's: names of backends, of models, or tiers. None: all."""

    def __post_init__(self) -> None:
        if not self.lineage:
            object.__setattr__(self, "lineage", self.id)


@dataclass(frozen=True, slots=True)
class Viewer:
    """The owner for whom stored files, batches and responses are looked up."""

    team: str
    key: str = ""
    """Lineage; what other keys made is hidden from it. Empty: all of the team's."""


@dataclass(frozen=True, slots=True)
class Tenant:
    key: Key
    policy: Policy
    epoch: str = ""
    """Fingerprint of the policy: a changed policy never answers from the old one's cache."""
    closed: frozenset[str] = frozenset()
    """Names of backends that the operator opened to other teams only."""
    team: str = field(init=False)
    organisation: str = field(init=False)
    viewer: Viewer = field(init=False)
    access: Access | None = field(init=False)
    """None: it may use every backend."""
    yields: bool = field(init=False)
    """Does all that it asks give way to interactive requests?"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "team", self.key.team)  # every room asks, some several times a request
        object.__setattr__(self, "organisation", self.policy.organisation)
        shares = self.policy.data.share == "team"
        object.__setattr__(self, "viewer", Viewer(self.team, "" if shares else self.key.lineage))
        allowed = access(self.team, self.policy.allowed_models, self.key.allowed_models, self.closed)
        object.__setattr__(self, "access", allowed)
        object.__setattr__(self, "yields", self.policy.limits.priority == "batch")

    def batch(self, controls: Controls) -> bool:
        """Does a request with these controls give way to interactive ones? It may lower itself, not raise."""
        return self.yields or controls.priority == "batch"
