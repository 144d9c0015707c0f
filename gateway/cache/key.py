"""What makes two requests the same: the exact key, and the question with all that must match around it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from gateway.dialects.canonical import canonical
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant

MAX_TEMPERATURE = 0.3
"""Above it, or where it is not given, a client expects answers to vary."""
LONGEST_QUESTION = 6000
"""Characters; a longer text does not fit an embedder's window."""

_SHAPING = ("models", "cache", "context", "data", "mode", "share")
"""Sections of a policy that decide how a question is answered."""


@dataclass(frozen=True, slots=True)
class Question:
    """The last user turn, and the hash of everything else that must be equal for its answer to serve."""

    partition: bytes
    text: str


def scope(tenant: Tenant) -> str:
    """Who shares answers with this tenant, under its policy."""
    match tenant.policy.cache.scope:
        case "key":
            return f"key/{tenant.organisation}/{tenant.team}/{tenant.key.id}"
        case "team":
            return f"team/{tenant.organisation}/{tenant.team}"
        case "organisation":
            return f"organisation/{tenant.organisation}"
        case "public":
            return "public"


def epoch(tenant: Tenant) -> str:
    """Changes with the policy. Teams that share answers differ in theirs, so there only what shapes answers counts."""
    if tenant.policy.cache.scope in ("key", "team"):
        return tenant.epoch
    shaping = tenant.policy.model_dump(mode="json", include=set(_SHAPING))
    return blake2b(orjson.dumps(shaping, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def digest(request: CompletionRequest, tenant: Tenant, revision: str) -> bytes:
    """16 bytes: equal for requests that deserve the same answer, to the letter."""
    return _hash(request, tenant, revision, canonical(request))


def question(request: CompletionRequest, tenant: Tenant, revision: str, embedder: str) -> Question | None:
    """The question that the semantic cache may answer, or None when this request is not for it."""
    policy = tenant.policy.cache.semantic
    if not policy.enabled or request.parallel != 1 or request.needs or not request.turns:
        return None
    if not policy.sampled and (request.temperature is None or request.temperature > MAX_TEMPERATURE):
        return None
    last = request.turns[-1]
    if last.role != "user" or last.images or not 0 < len(last.text.strip()) <= LONGEST_QUESTION:
        return None
    around = _without_last_text(request, last.index)
    if around is None:
        return None
    return Question(_hash(request, tenant, f"{revision}\0{embedder}", around), last.text)


def _without_last_text(request: CompletionRequest, index: int) -> dict[str, Any] | None:
    """The canonical body with the last message's text taken out; None when that holds more than text."""
    body = canonical(request)
    messages = body.get("messages")
    if not isinstance(messages, list) or index != len(messages) - 1:
        return None
    last = dict(messages[index])
    content = last.pop("content", None)
    if not isinstance(content, str):
        if not (isinstance(content, list) and len(content) == 1 and content[0].get("type") == "text"):
            return None
        last["part"] = {name: value for name, value in content[0].items() if name != "text"}
    return {**body, "messages": [*messages[:index], last]}


def _hash(request: CompletionRequest, tenant: Tenant, revision: str, body: dict[str, Any]) -> bytes:
    controls = request.controls
    around = (
        scope(tenant),
        epoch(tenant),
        revision,
        request.dialect,
        controls.tier,
        controls.untouched,
        sorted(value.decode("latin-1") for name, value in request.headers.items() if name.endswith(b"-beta")),
    )
    hashed = blake2b(orjson.dumps(around), digest_size=16)
    hashed.update(orjson.dumps(body, option=orjson.OPT_SORT_KEYS))
    return hashed.digest()
