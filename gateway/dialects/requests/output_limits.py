"""Reads output limits and numbers of answers, under the field names of all known servers.

A local server ignores unknown names, but it may obey a field that does not belong to the request's dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BadRequest

MAX_ANSWERS = 128

_LEAST = frozenset({"min_tokens", "min_new_tokens", "min_length"})
"""Fields for the minimum number of output tokens. Some servers give the minimum priority over the maximum."""
LIMITS = _LEAST | {
    *("max_completion_tokens", "max_tokens", "max_output_tokens"),
    *("n_predict", "num_predict", "max_new_tokens", "max_gen_len", "max_length", "max_tokens_to_sample"),
}
"""Fields that limit output tokens at OpenAI, Anthropic, llama.cpp (which prefers its own fields), Ollama, TGI, SGLang,
vLLM and KoboldCpp."""
NO_END = 2**40
"""Number of tokens from which a limit counts as no limit. Larger values would overflow 64 bits in calculations."""
_COUNTS = ("n", "best_of", "n_cmpl", "num_beams", "beam_width", "num_return_sequences")
"""Fields for the number of generated answers, including those that are not returned."""
_HOLDERS = frozenset({"options", "parameters", "sampling_params", "generation_config", "extra_body"})
"""Objects in which Ollama, TGI, SGLang, Transformers and LiteLLM's proxy nest such fields."""
_CHATS_OWN = frozenset({"max_completion_tokens", "max_tokens"})
_FOREIGN_COUNTS = _HOLDERS | {*_COUNTS[3:]}
_SEVERAL = _HOLDERS | {*_COUNTS}
_FOREIGN = (LIMITS - _CHATS_OWN) | _HOLDERS
"""Limit fields that are rare in chat requests."""
_ALL = LIMITS | _HOLDERS
_OWN: Mapping[DialectName, tuple[str, ...]] = {
    "openai_chat": ("max_completion_tokens", "max_tokens"),
    "openai_completions": ("max_tokens",),
    "openai_responses": ("max_output_tokens",),
    "anthropic_messages": ("max_tokens",),
}
"""The limit fields that every server of a dialect knows."""


def longest(fields: Mapping[str, Any], dialect: DialectName = "openai_chat") -> int | None:
    """The largest output limit of the request in tokens; None if the dialect's own limit is missing or unlimited. If
    there are several limits, servers differ in which one they obey, so the largest counts."""
    if dialect == "openai_chat" and _CHATS_OWN.isdisjoint(fields):
        return None
    value: list[Any] = [limit for name in _OWN[dialect] if (limit := fields.get(name)) is not None]
    if not value:
        return None
    if dialect != "openai_chat" or not _FOREIGN.isdisjoint(fields):
        for holder in _holders(fields):
            value += [limit for name in LIMITS if (limit := holder.get(name)) is not None]
    if any(type(limit) is not int or limit < 0 for limit in value):
        return None
    most: int = max(value)
    return most if most < NO_END else None


def answers(fields: Mapping[str, Any]) -> int:
    """The number of answers that a backend may generate. `n`, `best_of` and `n_cmpl` in `fields` must already be
    checked."""
    if _SEVERAL.isdisjoint(fields):
        return 1
    most: int = max(fields.get("n") or 1, fields.get("best_of") or 1, fields.get("n_cmpl") or 1)
    return most if _FOREIGN_COUNTS.isdisjoint(fields) else max(most, foreign_answers(fields))


def foreign_answers(fields: Mapping[str, Any]) -> int:
    """The number of answers according to unchecked fields. Raises BadRequest with the name of an invalid field."""
    most = 1
    for holder in _holders(fields):
        for name in _COUNTS:
            count = holder.get(name)
            if count is not None:
                if type(count) is not int or not 1 <= count <= MAX_ANSWERS:
                    raise BadRequest(f"{name} must be a whole number from 1 to {MAX_ANSWERS}.", param=name)
                most = max(most, count)
    return most


def may_have_foreign(request: CompletionRequest) -> bool:
    """Whether the request may have limit fields from outside its dialect."""
    if request.dialect == "openai_chat":
        return not _FOREIGN.isdisjoint(request.body)
    return request.dialect in _OWN and not _ALL.isdisjoint(request.body)


def own_limit(request: CompletionRequest, most: int) -> int:
    """The value for the dialect's own limit field if no limit may exceed `most`. It is never above the client's
    value."""
    value = [limit for name in _OWN[request.dialect] if type(limit := request.body.get(name)) is int]
    return min(most, max(value, default=most))


def lowered(raw: bytes, most: int) -> bytes:
    """Return the JSON object `raw` with all output limits, under any name, lowered to `most`."""
    body = orjson.loads(raw)
    changes = {name: orjson.dumps(limit) for name, limit in _changed(body, most).items()}
    for name in _HOLDERS:
        if type(holder := body.get(name)) is dict and (changed := _changed(holder, most)):
            changes[name] = orjson.dumps({**holder, **changed})
    return json_splice.splice(raw, body, changes) if changes else raw


def _changed(fields: Mapping[str, Any], most: int) -> dict[str, int]:
    value = {name: limit for name in LIMITS if (limit := fields.get(name)) is not None}
    return {
        name: 0 if name in _LEAST and type(limit) is not int else most
        for name, limit in value.items()
        if type(limit) is not int or limit > most or (limit < 0 and name not in _LEAST)
    }


def _holders(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield fields
    for name in _HOLDERS:
        if type(holder := fields.get(name)) is dict:
            yield holder
