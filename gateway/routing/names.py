"""A model name that an app uses → the backends it may mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.domain.backend import Backend
from gateway.domain.policy import ModelRule, Policy
from gateway.errors import UnknownModel


class Named(NamedTuple):
    """`rule` None: the client asked for these backends themselves, so nothing is decided for it."""

    backends: tuple[Backend, ...]
    rule: ModelRule | None = None
    missing: tuple[str, ...] = ()
    """Names in the rule that no backend has."""


def resolve(model: str, policy: Policy, backends: Sequence[Backend]) -> Named:
    """The policy first, then a backend's own name, then every backend of that model. Raises UnknownModel."""
    rule = policy.rule(model)
    if isinstance(rule, ModelRule):
        return _chosen_from(rule, backends)
    wanted = rule or model
    found = [each for each in backends if each.name == wanted] or [each for each in backends if each.model == wanted]
    if not found:
        alias = f" (the policy's alias leads to {wanted!r}, which no backend is called)" if wanted != model else ""
        raise UnknownModel(
            f"The model {model!r} does not exist here{alias}. Use one of: {', '.join(known(policy, backends))}.",
            param="model",
        )
    return Named(tuple(found))


def known(policy: Policy, backends: Sequence[Backend]) -> list[str]:
    """Every name that `resolve` understands, without doubles."""
    names = ["auto", *policy.models, *(each.name for each in backends), *(each.model for each in backends)]
    return list(dict.fromkeys(names))


def _chosen_from(rule: ModelRule, backends: Sequence[Backend]) -> Named:
    if not rule.candidates:
        missing = () if rule.reference is None or _find(rule.reference, backends) else (rule.reference,)
        return Named(tuple(backends), rule, missing)
    names = dict.fromkeys([*rule.candidates, *([rule.reference] if rule.reference else [])])
    pairs = [(name, _find(name, backends)) for name in names]
    return Named(
        tuple(backend for _, backend in pairs if backend is not None),
        rule,
        tuple(name for name, backend in pairs if backend is None),
    )


def _find(name: str, backends: Sequence[Backend]) -> Backend | None:
    return next((each for each in backends if each.name == name), None)
