"""The tenant of a request: team, key and policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gateway.domain.access import Access, access
from gateway.domain.policy import Policy
from gateway.domain.request import Controls

Scope = Literal["inference", "usage", "admin"]


@dataclass(frozen=True, slots=True)
class Key:
    """The stored facts about an API key. The secret itself is not stored."""

    id: str
    team: str
    name: str = ""
    scopes: frozenset[str] = frozenset({"inference"})
    expires_at: float | None = None
    """Expiry in Unix seconds; None if the key does not expire."""
    lineage: str = ""
    """Id of the first key in a chain of rotations by `keys rotate`. For a key that was never rotated, its own id.
    Spend, limits and ownership belong to the lineage, so that a new secret changes none of them."""
    allowed_models: frozenset[str] | None = None
    """Names of backends, names of models, or tiers that the key may use. The policy's restriction applies too. None:
    the key adds no restriction."""

    def __post_init__(self) -> None:
        if not self.lineage:
            object.__setattr__(self, "lineage", self.id)


@dataclass(frozen=True, slots=True)
class Viewer:
    """The owner in whose name stored files, batches and responses are looked up: a key, or a whole team."""

    team: str
    key: str = ""
    """Lineage of a key, which sees only what its own lineage and the whole team own. Empty: all rows of the team are
    visible."""


@dataclass(frozen=True, slots=True)
class Tenant:
    key: Key
    policy: Policy
    epoch: str = ""
    """Fingerprint of the policy. After a change of the policy, answers that were cached before the change are
    not used."""
    closed: frozenset[str] = frozenset()
    """Names of backends that only other teams may use."""
    team: str = field(init=False)
    organisation: str = field(init=False)
    viewer: Viewer = field(init=False)
    access: Access | None = field(init=False)
    """The restrictions of the tenant. None: the tenant may use every backend."""
    yields: bool = field(init=False)
    """Whether all requests of the tenant have the priority `batch`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "team", self.key.team)  # several packages read it, some more than once per request
        object.__setattr__(self, "organisation", self.policy.organisation)
        shares = self.policy.data.share == "team"
        object.__setattr__(self, "viewer", Viewer(self.team, "" if shares else self.key.lineage))
        allowed = access(self.team, self.policy.allowed_models, self.key.allowed_models, self.closed)
        object.__setattr__(self, "access", allowed)
        object.__setattr__(self, "yields", self.policy.limits.priority == "batch")

    def batch(self, controls: Controls) -> bool:
        """Return whether a request with these controls has the priority `batch`. A client can lower its priority, but
        not raise it."""
        return self.yields or controls.priority == "batch"
