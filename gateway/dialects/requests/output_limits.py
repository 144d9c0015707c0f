"""Reads output limits and numbers of answers in the field names of all known servers.

A local server passes over names that it does not know, and may obey one that the request's own dialect has not.
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
"""Fields for the least tokens of an answer, which some servers put above the most."""
LIMITS = _LEAST | {
    *("max_completion_tokens", "max_tokens", "max_output_tokens"),
    *("n_predict", "num_predict", "max_new_tokens", "max_gen_len", "max_length", "max_tokens_to_sample"),
}
"""Fields that OpenAI, Anthropic, llama.cpp (which obeys its own before the others), Ollama, TGI, SGLang, vLLM or
KoboldCpp know for the tokens of an answer."""
NO_END = 2**40
"""Tokens; a limit from here on limits nothing, and what is reckoned with it would not fit 64 bits."""
_COUNTS = ("n", "best_of", "n_cmpl", "num_beams", "beam_width", "num_return_sequences")
"""The same for the number of answers, shown or not."""
_HOLDERS = frozenset({"options", "parameters", "sampling_params", "generation_config", "extra_body"})
"""Objects in which Ollama, TGI, SGLang, Transformers and LiteLLM's proxy have such fields."""
_CHATS_OWN = frozenset({"max_completion_tokens", "max_tokens"})
_FOREIGN_COUNTS = _HOLDERS | {*_COUNTS[3:]}
_SEVERAL = _HOLDERS | {*_COUNTS}
_FOREIGN = (LIMITS - _CHATS_OWN) | _HOLDERS
"""Fields of few requests in chat."""
_ALL = LIMITS | _HOLDERS
_OWN: Mapping[DialectName, tuple[str, ...]] = {
    "openai_chat": ("max_completion_tokens", "max_tokens"),
    "openai_completions": ("max_tokens",),
    "openai_responses": ("max_output_tokens",),
    "anthropic_messages": ("max_tokens",),
}
"""What every server of a dialect knows."""


def longest(fields: Mapping[str, Any], dialect: DialectName = "openai_chat") -> int | None:
    """The most tokens that an answer may have. Of several limits the largest: which one a server obeys is its own
    affair. None: there is none of the dialect's own, or one that means no end."""
    if dialect == "openai_chat" and _CHATS_OWN.isdisjoint(fields):
        return None
    given: list[Any] = [limit for name in _OWN[dialect] if (limit := fields.get(name)) is not None]
    if not given:
        return None
    if dialect != "openai_chat" or not _FOREIGN.isdisjoint(fields):
        for holder in _holders(fields):
            given += [limit for name in LIMITS if (limit := holder.get(name)) is not None]
    if any(type(limit) is not int or limit < 0 for limit in given):
        return None
    most: int = max(given)
    return most if most < NO_END else None


def answers(fields: Mapping[str, Any]) -> int:
    """How many a backend may write, in the words of OpenAI, vLLM, llama.cpp and Transformers. `n`, `best_of` and
    `n_cmpl` of `fields` itself were checked before."""
    if _SEVERAL.isdisjoint(fields):
        return 1
    most: int = max(fields.get("n") or 1, fields.get("best_of") or 1, fields.get("n_cmpl") or 1)
    return most if _FOREIGN_COUNTS.isdisjoint(fields) else max(most, foreign_answers(fields))


def foreign_answers(fields: Mapping[str, Any]) -> int:
    """The same of fields that nobody has checked. Raises BadRequest naming one that is no such number."""
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
    """May it have limits that are not its dialect's own?"""
    if request.dialect == "openai_chat":
        return not _FOREIGN.isdisjoint(request.body)
    return request.dialect in _OWN and not _ALL.isdisjoint(request.body)


def own_limit(request: CompletionRequest, most: int) -> int:
    """What its dialect's own field is to say where no field may say more than `most`: not more than the client did."""
    given = [limit for name in _OWN[request.dialect] if type(limit := request.body.get(name)) is int]
    return min(most, max(given, default=most))


def lowered(raw: bytes, most: int) -> bytes:
    """The JSON object `raw` with no limit above `most`, by whatever name."""
    body = orjson.loads(raw)
    changes = {name: orjson.dumps(limit) for name, limit in _changed(body, most).items()}
    for name in _HOLDERS:
        if type(holder := body.get(name)) is dict and (changed := _changed(holder, most)):
            changes[name] = orjson.dumps({**holder, **changed})
    return json_splice.splice(raw, body, changes) if changes else raw


def _changed(fields: Mapping[str, Any], most: int) -> dict[str, int]:
    given = {name: limit for name in LIMITS if (limit := fields.get(name)) is not None}
    return {
        name: 0 if name in _LEAST and type(limit) is not int else most
        for name, limit in given.items()
        if type(limit) is not int or limit > most or (limit < 0 and name not in _LEAST)
    }


def _holders(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield fields
    for name in _HOLDERS:
        if type(holder := fields.get(name)) is dict:
            yield holder
