"""Decides which backends a tenant may use. Three settings can restrict them: the policy's list, the API key's list, and
the setting `teams` of each backend."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class Named(Protocol):
    """The names of a backend. A list of allowed models may name the backend by any of them."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def model_group(self) -> str: ...
    @property
    def tier(self) -> str: ...


class Access:
    """Restricts the backends that one tenant may use. It is created once, and only for a tenant with restrictions."""

    __slots__ = ("_closed", "_lists", "_team", "mark")

    def __init__(
        self, team: str, policy: Sequence[str] | None, key: Collection[str] | None, closed: Collection[str]
    ) -> None:
        """`policy`, `key`: the names that the policy and the key allow. A name is that of a backend, a model, a model
        group or a tier. None: all are allowed. `closed`: names of backends that only other teams may use.
        """
        found = ((f"allowed_models of team {team}'s policy", policy), ("allowed_models of this key", key))
        self._team = team
        self._lists = tuple((place, frozenset(filter(None, names))) for place, names in found if names is not None)
        self._closed = frozenset(closed)
        self.mark = repr((sorted(self._closed), [sorted(names) for _, names in self._lists]))
        """A text that is equal for tenants with the same restrictions. Tenants with different restrictions must not
        share cached answers."""

    def excludes(self, backend: Named) -> str:
        """The setting that forbids the tenant to use `backend`; empty if the tenant may use it."""
        if backend.name in self._closed:
            return f"`teams` of the backend {backend.name} in the operator's file does not hold {self._team}"
        for place, names in self._lists:
            if names.isdisjoint((backend.name, backend.model, backend.model_group, backend.tier)):
                return f"{place} does not hold it"
        return ""


def access(
    team: str, policy: Sequence[str] | None, key: Collection[str] | None, closed: Collection[str]
) -> Access | None:
    """The restrictions of a tenant; None if the tenant has none, so that most requests need no check. `policy`, `key`:
    the names that the policy and the key allow; None: all are allowed. `closed`: names of backends that only other
    teams may use.
    """
    if policy is None and key is None and not closed:
        return None
    return Access(team, policy, key, closed)
