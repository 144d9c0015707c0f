"""Makes the JSON Schema of policy files, and applies the operator's ceilings to policies."""

from __future__ import annotations

from typing import Any

from gateway.domain.policy import Policy
from gateway.settings.gateway import Ceilings
from gateway.settings.renamed_keys import POLICY, KeyPath, with_both_names

_SCOPES = ("key", "team", "organisation", "public")


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of policies/TEAM.yaml, for editors and CI."""
    schema = with_both_names(Policy.model_json_schema(mode="validation"), POLICY)
    extends = {"type": "string", "description": "`default` or the name of a base; its keys are taken over."}
    section = {**schema["properties"], "extends": extends}
    entry = {"type": "object", "additionalProperties": False}
    schema["$defs"]["Entry"] = {**entry, "properties": {key: section[key] for key in section if key != "team"}}
    entries = {"type": "object", "additionalProperties": {"$ref": "#/$defs/Entry"}}
    del schema["required"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "properties": {
            **section,
            "base": {"type": "string", "description": "Instead of `team`: the name of a base that teams extend."},
            "teams": {**entries, "description": "Instead of `team`: several teams, name → keys of a policy."},
            "bases": {**entries, "description": "Beside `teams`: bases that teams extend, name → keys of a policy."},
        },
        "anyOf": [{"required": [key]} for key in ("team", "base", "teams", "bases")],
        "title": "Thriftgate team policy",
    }


def above_ceilings(policy: Policy, ceilings: Ceilings) -> list[tuple[KeyPath, str]]:
    """The (path of the key, sentence) of each value in a policy that is above the operator's ceiling. A value that the
    policy does not set is not reported."""
    found: list[tuple[KeyPath, str]] = []

    def refuse(key: str, sentence: str) -> None:
        found.append((tuple(int(step) if step.isdigit() else step for step in key.split(".")), sentence))

    def exceeds(key: str, value: Any, ceiling: Any) -> None:
        if value is not None and ceiling is not None and value > ceiling:
            refuse(key, f"{value} is above the operator's ceiling of {ceiling}; lower it")

    for number, budget in enumerate(policy.budget):
        place = f"budget.{number}" if len(policy.budget) > 1 else "budget"
        exceeds(f"{place}.limit_usd", budget.limit_usd, ceilings.limit_usd)
    for key in ("requests_per_minute", "tokens_per_minute", "concurrent"):
        exceeds(f"limits.{key}", getattr(policy.limits, key), getattr(ceilings, key))
        exceeds(f"limits.per_key.{key}", getattr(policy.limits.per_key, key), getattr(ceilings, key))
    exceeds("context.max_input_tokens", policy.context.max_input_tokens, ceilings.max_input_tokens)
    said = policy.cache.model_fields_set
    if "ttl" in said:
        exceeds("cache.ttl", policy.cache.ttl, ceilings.cache_ttl)
    if "max_error" in policy.cache.semantic.model_fields_set:
        exceeds("cache.semantic.max_error", policy.cache.semantic.max_error, ceilings.max_error)
    if "scope" in said and _wider(policy.cache.scope, ceilings.cache_scope):
        wide = f"{policy.cache.scope} shares wider than the operator's ceiling {ceilings.cache_scope}; narrow it"
        refuse("cache.scope", wide)
    if ceilings.hosted == "forbidden" and "hosted" in policy.data.model_fields_set and policy.data.hosted == "allowed":
        refuse("data.hosted", "the operator forbids hosted backends; remove the key or set it to forbidden")
    if ceilings.store_prompts is False and policy.data.store_prompts:
        refuse("data.store_prompts", "the operator forbids storing prompts; set it to false")
    if ceilings.store_prompts is False and policy.data.store_samples is not None:
        refuse("data.store_samples", "the operator forbids storing prompts; remove the key")
    if ceilings.store_prompts is False and policy.context.old_turns == "summarize":
        refuse("context.old_turns", "notes about prompts are stored, which the operator forbids; set it to keep")
    if ceilings.forward is not None and (more := set(policy.data.forward).difference(ceilings.forward)):
        refuse("data.forward", f"the operator does not allow {', '.join(sorted(more))}; remove it")
    return found


def under_ceilings(policy: Policy, ceilings: Ceilings) -> Policy:
    """`policy` with each unset limit set to the operator's ceiling."""
    limits = {
        key: getattr(ceilings, key)
        for key in ("requests_per_minute", "tokens_per_minute", "concurrent")
        if getattr(policy.limits, key) is None and getattr(ceilings, key) is not None
    }
    updates: dict[str, Any] = {}
    if limits:
        updates["limits"] = policy.limits.model_copy(update=limits)
    if policy.context.max_input_tokens is None and ceilings.max_input_tokens is not None:
        updates["context"] = policy.context.model_copy(update={"max_input_tokens": ceilings.max_input_tokens})
    cache: dict[str, Any] = {}
    if ceilings.cache_ttl is not None:
        cache["ttl"] = min(policy.cache.ttl, ceilings.cache_ttl)
    if _wider(policy.cache.scope, ceilings.cache_scope):
        cache["scope"] = ceilings.cache_scope
    if ceilings.max_error is not None and policy.cache.semantic.max_error > ceilings.max_error:
        cache["semantic"] = policy.cache.semantic.model_copy(update={"max_error": ceilings.max_error})
    if cache:
        updates["cache"] = policy.cache.model_copy(update=cache)
    if ceilings.hosted == "forbidden":
        updates["data"] = policy.data.model_copy(update={"hosted": "forbidden"})
    return policy.model_copy(update=updates) if updates else policy


def _wider(scope: str, ceiling: str | None) -> bool:
    return ceiling is not None and _SCOPES.index(scope) > _SCOPES.index(ceiling)
