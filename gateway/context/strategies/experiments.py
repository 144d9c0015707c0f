"""Adds the texts of a team's experiments to system prompts (`experiments` of the policy). A digest of team, experiment
and session chooses the variant, so all requests of a session have the same system prompt on every worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import orjson

from gateway.context.strategies.relevance import contains_thinking, is_exempt
from gateway.dialects.clients import DIALECTS
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant

_SYSTEM = frozenset({"system", "developer"})
_DIALECTS = frozenset({"anthropic_messages", "openai_chat", "openai_responses"})


def assigned(request: CompletionRequest, tenant: Tenant) -> dict[str, str]:
    """Experiment → variant for the session of a request. Empty if the request takes no part: it has no session name, is
    held out or untouched, or has or asks for signed thinking, before which nothing may change."""
    session = request.controls.session or request.agent_session
    if not session or request.dialect not in _DIALECTS or contains_thinking(request) or is_exempt(request, tenant):
        return {}
    return {name: drawn(tenant.team, name, session, variants) for name, variants in tenant.policy.experiments.items()}


def drawn(team: str, experiment: str, session: str, variants: Mapping[str, str]) -> str:
    """The variant of a session. Each variant has the same probability."""
    text = f"{team}\0{experiment}\0{session}".encode("utf-8", "surrogatepass")
    return list(variants)[int.from_bytes(blake2b(text, digest_size=8).digest()) % len(variants)]


def varied(request: CompletionRequest, text: str) -> CompletionRequest:
    """The request with `text` at the end of its system prompt."""
    body = dict(request.body)
    if request.dialect == "openai_responses":
        body["instructions"] = _joined(body.get("instructions"), text)
    elif request.dialect == "anthropic_messages":
        body["system"] = _joined(body.get("system"), text)
    else:
        messages = body["messages"]
        end = next((at for at, each in enumerate(messages) if each.get("role") not in _SYSTEM), len(messages))
        body["messages"] = [*messages[:end], {"role": "system", "content": text}, *messages[end:]]
    parsed = DIALECTS[request.dialect].parse(orjson.dumps(body), request.id, request.controls, request.headers)
    return replace(
        parsed,
        query=request.query,
        agent=request.agent,
        agent_session=request.agent_session,
        store=request.store,
        echoed=_echoed(request),
    )


def _joined(given: Any, text: str) -> Any:
    if type(given) is list:
        return [*given, {"type": "text", "text": text}]
    return f"{given}\n\n{text}" if given else text


def _echoed(request: CompletionRequest) -> dict[str, Any]:
    """The values of changed fields that the answer repeats. The client must see its own instructions."""
    if request.dialect != "openai_responses":
        return request.echoed
    return {"instructions": request.body.get("instructions"), **request.echoed}
