"""Finds the backends that a model name means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.domain.access import Access
from gateway.domain.backend import RANK, Backend
from gateway.domain.policy import ModelRule, Policy
from gateway.errors import Forbidden, UnknownModel
from gateway.routing.ceiling import NamedModel


class ResolvedModel(NamedTuple):
    """The backends that a model name means. `rule`: the policy's rule for the choice among them; None: the client named
    a single backend."""

    backends: tuple[Backend, ...]
    rule: ModelRule | None = None
    missing: tuple[str, ...] = ()
    """Names in the rule that match no backend."""
    ceiling: NamedModel | None = None
    """The model that the client named, if the cost of that model is the ceiling. None if the ceiling is the cost of the
    rule's reference."""
    output_cap: int | None = None
    """Maximum output tokens by the policy, without thinking. None: the policy sets no limit."""


def permitted(model: str, policy: Policy, backends: Sequence[Backend], access: Access | None) -> ResolvedModel:
    """Find the backends that `model` means, without the backends that the tenant may not use. Raises Forbidden if no
    backend is left, and UnknownModel."""
    if access is None:
        return resolve(model, policy, backends)
    named = resolve(model, policy, backends, [each for each in backends if not access.excludes(each)])
    found = tuple(each for each in named.backends if not access.excludes(each))
    if named.backends and not found:
        why = "; ".join(dict.fromkeys(access.excludes(each) for each in named.backends))
        raise Forbidden(
            f"The model {model!r} may not be used: {why}. Ask for another; GET /v1/models lists those that you may use."
        )
    return named._replace(backends=found)


def resolve(
    model: str, policy: Policy, backends: Sequence[Backend], offered: Sequence[Backend] | None = None
) -> ResolvedModel:
    """Find the backends that `model` means: a name in the policy, a backend, a model or a model group. Raises
    UnknownModel, which lists the names of the `offered` backends (default: all)."""
    rule = policy.rule(model)
    if isinstance(rule, ModelRule):
        return _chosen_from(rule, backends)
    wanted = rule or model
    found = [each for each in backends if each.name == wanted] or [
        each for each in backends if wanted in (each.model, each.model_group)
    ]
    if not found and rule is not None:
        found = [each for each in backends if each.tier == wanted and not each.only_named]
    if not found:
        alias = f" (the policy's alias leads to {wanted!r}, which no backend is called)" if wanted != model else ""
        names = known(policy, backends if offered is None else offered)
        raise UnknownModel(
            f"The model {model!r} does not exist here{alias}. Use one of: {', '.join(names)}.",
            param="model",
        )
    return ResolvedModel(tuple(found))


def known(policy: Policy, backends: Sequence[Backend]) -> list[str]:
    """All names that `resolve` accepts, each name once."""
    names = ["auto", *policy.models, *(each.name for each in backends), *(each.model for each in backends)]
    return list(dict.fromkeys([*names, *(each.model_group for each in backends if each.model_group)]))


def _chosen_from(rule: ModelRule, backends: Sequence[Backend]) -> ResolvedModel:
    reference = () if rule.reference is None else (rule.reference,)
    found: dict[str, Backend] = {} if rule.candidates else {each.name: each for each in backends if not each.only_named}
    missing = []
    for name in dict.fromkeys((*rule.candidates, *reference)):
        meant = _meant(name, backends)
        found |= {each.name: each for each in meant}
        if not meant and name not in RANK:
            missing.append(name)
    return ResolvedModel(tuple(found.values()), rule, tuple(missing))


def _meant(name: str, backends: Sequence[Backend]) -> list[Backend]:
    """The backend named `name`; if there is none, all backends of the group or tier `name`. May be empty."""
    return [each for each in backends if each.name == name] or [
        each for each in backends if name == each.model_group or (name == each.tier and not each.only_named)
    ]
