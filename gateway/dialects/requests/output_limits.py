"""Reads the output limit and the number of answers of a request. Reads the field names of all known servers, because a
local server may obey a field of another dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BadRequest

MAX_ANSWERS = 128

_LEAST = frozenset({"min_tokens", "min_new_tokens", "min_length"})
"""Names of the fields for the minimum number of output tokens. Some servers prefer the minimum if it contradicts the
maximum."""
LIMITS = _LEAST | {
    *("max_completion_tokens", "max_tokens", "max_output_tokens"),
    *("n_predict", "num_predict", "max_new_tokens", "max_gen_len", "max_length", "max_tokens_to_sample"),
}
"""Names of the fields that limit the number of output tokens, including the minimum fields. They are used by OpenAI,
Anthropic, llama.cpp (which prefers its own fields), Ollama, TGI, SGLang, vLLM and KoboldCpp."""
NO_END = 2**40
"""A limit of this number of tokens or more counts as no limit. Larger values would overflow 64 bits in calculations."""
_COUNTS = ("n", "best_of", "n_cmpl", "num_beams", "beam_width", "num_return_sequences")
"""Names of the fields for the number of generated answers. Answers that are generated but not returned are included."""
_HOLDERS = frozenset({"options", "parameters", "sampling_params", "generation_config", "extra_body"})
"""Names of the objects in which Ollama, TGI, SGLang, Transformers and LiteLLM's proxy expect limit fields."""
_CHATS_OWN = frozenset({"max_completion_tokens", "max_tokens"})
_FOREIGN_COUNTS = _HOLDERS | {*_COUNTS[3:]}
_SEVERAL = _HOLDERS | {*_COUNTS}
_FOREIGN = (LIMITS - _CHATS_OWN) | _HOLDERS
"""Names of limit fields, and of objects with such fields, that are rare in chat requests."""
_ALL = LIMITS | _HOLDERS
_OWN: Mapping[DialectName, tuple[str, ...]] = {
    "openai_chat": ("max_completion_tokens", "max_tokens"),
    "openai_completions": ("max_tokens",),
    "openai_responses": ("max_output_tokens",),
    "anthropic_messages": ("max_tokens",),
}
"""Dialect → the limit fields that every server of this dialect knows."""
_FOREIGN_TO = {dialect: _ALL - {*own} for dialect, own in _OWN.items()}
"""Dialect → the other limit fields, and the objects with such fields."""


def longest(fields: Mapping[str, Any], dialect: DialectName = "openai_chat") -> int | None:
    """The largest output limit in the request, in tokens. None if the dialect's own field is missing, a limit is
    invalid, or a limit is too high to count."""
    if dialect == "openai_chat" and _CHATS_OWN.isdisjoint(fields):
        return None
    value: list[Any] = [limit for name in _OWN[dialect] if (limit := fields.get(name)) is not None]
    if value and not _FOREIGN_TO[dialect].isdisjoint(fields):
        for holder in _holders(fields):
            value += [limit for name in LIMITS if (limit := holder.get(name)) is not None]
    most = -1
    for limit in value:
        if type(limit) is not int or limit < 0:
            return None
        most = max(most, limit)
    return most if 0 <= most < NO_END else None


def answers(fields: Mapping[str, Any]) -> int:
    """The number of answers that a backend may generate for the request.

    Before this call, the fields `n`, `best_of` and `n_cmpl` must have been checked.
    """
    if _SEVERAL.isdisjoint(fields):
        return 1
    most: int = max(fields.get("n") or 1, fields.get("best_of") or 1, fields.get("n_cmpl") or 1)
    return most if _FOREIGN_COUNTS.isdisjoint(fields) else max(most, foreign_answers(fields))


def foreign_answers(fields: Mapping[str, Any]) -> int:
    """The number of answers that the request asks for in fields that are checked nowhere else. Raises BadRequest with
    the name of an invalid field."""
    most = 1
    for holder in () if _SEVERAL.isdisjoint(fields) else _holders(fields):
        for name in _COUNTS:
            count = holder.get(name)
            if count is not None:
                if type(count) is not int or not 1 <= count <= MAX_ANSWERS:
                    raise BadRequest(f"{name} must be a whole number from 1 to {MAX_ANSWERS}.", param=name)
                most = max(most, count)
    return most


def may_have_foreign(request: CompletionRequest) -> bool:
    """Whether the request may have limit fields that do not belong to its dialect."""
    if request.dialect == "openai_chat":
        return not _FOREIGN.isdisjoint(request.body)
    return request.dialect in _OWN and not _ALL.isdisjoint(request.body)


def own_limit(request: CompletionRequest, most: int) -> int:
    """The value to send in the limit field of the dialect: the client's own limit or `most`, whichever is lower."""
    value = [limit for name in _OWN[request.dialect] if type(limit := request.body.get(name)) is int]
    return min(most, max(value, default=most))


def lowered(raw: bytes, most: int) -> bytes:
    """The JSON object `raw` with every output limit, in any field, lowered to at most `most`."""
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
