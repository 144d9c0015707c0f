"""Adds the texts of a team's experiments to system prompts (`experiments` of the policy). A digest of team, experiment
and session chooses the variant, so all requests of a session have the same system prompt on every worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import orjson

from gateway.context.strategies.relevance import is_exempt
from gateway.dialects import json_splice
from gateway.dialects.clients import DIALECTS
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant

_SYSTEM = frozenset({"system", "developer"})
_FIELDS = {"anthropic_messages": "system", "openai_chat": "messages", "openai_responses": "instructions"}
"""Dialect → the field with the system prompt."""
_THINKING = ("thinking", "reasoning", "reasoning_effort")
_SEALED = "reasoning.encrypted_content"


def assigned(request: CompletionRequest, tenant: Tenant) -> dict[str, str]:
    """Experiment → variant for the session of a request. Empty if the request takes no part.

    A request takes no part if it has no session name, is held out, or must be sent unchanged. A request that asks for
    thinking takes no part either, because thinking is signed, and the text before it must not change.
    """
    session = request.controls.session or request.agent_session
    if not session or request.dialect not in _FIELDS or asks_for_thinking(request) or is_exempt(request, tenant):
        return {}
    return {name: drawn(tenant.team, name, session, variants) for name, variants in tenant.policy.experiments.items()}


def drawn(team: str, experiment: str, session: str, variants: Mapping[str, str]) -> str:
    """The variant of a session, chosen by a digest. All variants have the same probability."""
    text = f"{team}\0{experiment}\0{session}".encode("utf-8", "surrogatepass")
    return list(variants)[int.from_bytes(blake2b(text, digest_size=8).digest()) % len(variants)]


def varied(request: CompletionRequest, text: str) -> CompletionRequest:
    """The request with `text` at the end of its system prompt. All other values keep their bytes."""
    field = _FIELDS[request.dialect]
    raw = json_splice.splice(request.raw, request.body, {field: _extended(request, field, text)})
    parsed = DIALECTS[request.dialect].parse(raw, request.id, request.controls, request.headers)
    return replace(
        parsed,
        query=request.query,
        agent=request.agent,
        agent_session=request.agent_session,
        store=request.store,
        echoed=_echoed(request),
    )


def _extended(request: CompletionRequest, field: str, text: str) -> bytes:
    """The JSON of the request's `field`, with `text` added after the system prompt."""
    raw, given = request.raw, request.body.get(field)
    if type(given) is not list:
        return orjson.dumps(f"{given}\n\n{text}" if given else text)
    item, place = {"type": "text", "text": text}, len(given)
    if field == "messages":
        item = {"role": "system", "content": text}
        place = next((at for at, each in enumerate(given) if each.get("role") not in _SYSTEM), place)
    spans = json_splice.elements(raw, json_splice.find(raw, field)[-1][0])
    items = [raw[start:end] for start, end in spans]
    return b"[%b]" % b",".join([*items[:place], orjson.dumps(item), *items[place:]])


def asks_for_thinking(request: CompletionRequest) -> bool:
    """Whether the client has set a field about thinking. Clients set these fields in every request of a session."""
    body = request.body
    return any(body.get(name) is not None for name in _THINKING) or _SEALED in (body.get("include") or ())


def _echoed(request: CompletionRequest) -> dict[str, Any]:
    """The changed fields that the answer repeats, with the client's own values. The client must see its own
    instructions in the answer."""
    if request.dialect != "openai_responses":
        return request.echoed
    return {"instructions": request.body.get("instructions"), **request.echoed}
