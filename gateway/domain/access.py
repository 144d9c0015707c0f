"""Which backends a tenant may use: its policy's list, its key's list, and the backends' `teams`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class Named(Protocol):
    """The names of a backend that a list of allowed models may hold."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def tier(self) -> str: ...


class Access:
    """Made once per tenant, and only where something is restricted."""

    __slots__ = ("_closed", "_lists", "_team", "mark")

    def __init__(
        self, team: str, policy: Sequence[str] | None, key: Collection[str] | None, closed: Collection[str]
    ) -> None:
        """`policy`, `key`: names of backends, of their models, or tiers; None: all. `closed`: names of backends that
        the operator opened to other teams only."""
        found = ((f"allowed_models of team {team}'s policy", policy), ("allowed_models of this key", key))
        self._team = team
        self._lists = tuple((place, frozenset(names)) for place, names in found if names is not None)
        self._closed = frozenset(closed)
        self.mark = repr((sorted(self._closed), [sorted(names) for _, names in self._lists]))
        """Equal for tenants that may use the same: they may share cached answers."""

    def excludes(self, backend: Named) -> str:
        """The setting that keeps the tenant from `backend`; empty when it may use it."""
        if backend.name in self._closed:
            return f"`teams` of the backend {backend.name} in the operator's file does not hold {self._team}"
        for place, names in self._lists:
            if names.isdisjoint((backend.name, backend.model, backend.tier)):
                return f"{place} does not hold it"
        return ""


def access(
    team: str, policy: Sequence[str] | None, key: Collection[str] | None, closed: Collection[str]
) -> Access | None:
    """None where nothing is restricted, so that a request then costs nothing more."""
    if policy is None and key is None and not closed:
        return None
    return Access(team, policy, key, closed)
