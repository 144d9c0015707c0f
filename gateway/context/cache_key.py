"""The fields of a request that steer OpenAI's prompt cache.

OpenAI sends requests with the same `prompt_cache_key` to the same machines, which have the beginning of the prompt in
their caches. Without the field, only a digest of the first 256 tokens decides, and these are equal for many sessions.
"""

from __future__ import annotations

import re

from gateway.domain.backend import Backend
from gateway.domain.policy import Policy
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import Prefix

LEAST_CACHED = 1024
"""Minimum tokens of a prompt that OpenAI caches."""
_CONVERSATIONS = frozenset({"openai_chat", "openai_responses", "anthropic_messages"})
_KEPT_A_DAY = re.compile(r"(?:gpt-5(?:\.[12])?|gpt-4\.1)(?:-\d{4}-\d\d-\d\d)?|gpt-5(?:\.1)?-codex")
"""Matches the models for which OpenAI offers to keep prompts for 24 hours (OpenAI's documentation, prompt caching)."""


def cache_fields(request: CompletionRequest, policy: Policy, backend: Backend, prefix: Prefix) -> bytes:
    """The fields for OpenAI's prompt cache, as JSON members with a comma behind each. Empty if the request needs
    none.

    The key stands for one conversation of one API key; neither can be recovered from it. The client's own fields
    are never replaced. Prompts may be kept for 24 hours only if the team's policy allows storing prompts.
    """
    body = request.body
    if policy.context.prompt_cache != "auto" or request.controls.untouched or not backend.takes_cache_key:
        return b""
    if "prompt_cache_key" in body or request.dialect not in _CONVERSATIONS:
        return b""
    fields = b'"prompt_cache_key":"%b",' % prefix.session.hex().encode()
    if policy.data.store_prompts and "prompt_cache_retention" not in body and _KEPT_A_DAY.fullmatch(backend.model):
        fields += b'"prompt_cache_retention":"24h",'
    return fields
