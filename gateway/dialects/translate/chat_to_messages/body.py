"""Converts a chat request to a messages request."""

from __future__ import annotations

import re
from typing import Any

from gateway.dialects.anthropic_messages.models import abilities
from gateway.dialects.translate.chat_to_messages.content import Block, Numbered, conversation
from gateway.dialects.translate.chat_to_messages.effort import reason, sample
from gateway.dialects.translate.chat_to_messages.offer import offer
from gateway.dialects.translate.chat_to_messages.schema import enforceable
from gateway.errors import BadRequest

_TRANSLATED = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "stop"),
        *("temperature", "top_p", "top_k", "reasoning_effort", "thinking", "output_config", "response_format"),
        *("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls", "web_search_options"),
        *("user", "safety_identifier", "n", "logprobs", "top_logprobs", "modalities", "audio", "moderation"),
    }
)
_WITHOUT_EQUIVALENT = frozenset(
    {
        *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "metadata", "store", "service_tier"),
        *("prediction", "verbosity", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    }
)
"""Names of optional fields that are dropped, as in Anthropic's own OpenAI endpoint. Unknown fields are sent to the
backend."""
_PERSONAL = re.compile(r"(?m:^)[^@\n]*+@.+\.|^\+?[\d\s()-]{7,}$")
"""Matches e-mail addresses and telephone numbers. Anthropic rejects a user id that contains such data."""
_ONLY_JSON = "Answer with one JSON object and nothing else: no code fence, no words before or after it."


def translate(
    body: dict[str, Any], messages: list[Numbered], model: str, *, stream: bool, limit: int | None
) -> dict[str, Any]:
    """Convert a chat body to a messages request, which may contain `orjson.Fragment`s. Raises BadRequest with an
    unsupported field.

    `messages`: the messages of `body` to send. `limit`: maximum output tokens; None: the model's limit.
    """
    _refuse_impossible(body)
    can = abilities(model)
    system, turns = conversation(messages)
    translated: dict[str, Any] = {"model": model, "max_tokens": limit or can.usual_output, "messages": turns}
    if system := _with_form(system, body.get("response_format")):
        translated["system"] = system
    if stream:
        translated["stream"] = True
    if stop := _stop_sequences(body.get("stop")):
        translated["stop_sequences"] = stop
    translated |= offer(body, turns)
    translated |= {name: body[name] for name in ("thinking", "output_config") if type(body.get(name)) is dict}
    if form := _output_format(body.get("response_format")):
        translated["output_config"] = {"format": form, **translated.get("output_config", {})}
    reason(body, translated, can, limit)
    sample(body, translated, can)
    user = body.get("safety_identifier") or body.get("user")
    if user and not _PERSONAL.search(str(user)):
        translated["metadata"] = {"user_id": user}
    known = _TRANSLATED | _WITHOUT_EQUIVALENT
    return translated | {name: value for name, value in body.items() if name not in known and value is not None}


def _refuse_impossible(body: dict[str, Any]) -> None:
    if (body.get("n") or 1) > 1:
        raise BadRequest("This model answers once per request: n must be 1.", param="n")
    if body.get("logprobs"):
        raise BadRequest("This model gives no log-probabilities: leave logprobs out.", param="logprobs")
    if type(body.get("modalities")) is list and "audio" in body["modalities"]:
        raise BadRequest("This model does not speak: modalities must be text alone.", param="modalities")
    if body.get("moderation"):
        raise BadRequest("This model's provider moderates nothing beside: leave moderation out.", param="moderation")


def _stop_sequences(stop: Any) -> list[str]:
    if stop is None:
        return []
    sequences = [stop] if type(stop) is str else stop
    if type(sequences) is not list or not all(type(sequence) is str for sequence in sequences):
        raise BadRequest("stop must be a string or an array of strings.", param="stop")
    if not all(sequence.strip() for sequence in sequences):
        raise BadRequest("This model cannot stop at white space: stop needs a visible character.", param="stop")
    return sequences


def _with_form(system: str | list[Block], form: Any) -> str | list[Block]:
    """The system prompt. If `form`, the response format, asks for JSON without a schema, an instruction to answer in
    JSON is added."""
    if type(form) is not dict or form.get("type") != "json_object":
        return system
    if not system:
        return _ONLY_JSON
    value: list[Block] = [{"type": "text", "text": system}] if isinstance(system, str) else system
    return [*value, {"type": "text", "text": _ONLY_JSON}]


def _output_format(form: Any) -> dict[str, Any] | None:
    if type(form) is not dict or form.get("type") != "json_schema":
        return None
    described = form.get("json_schema")
    schema = described.get("schema") if type(described) is dict else None
    if type(schema) is not dict:
        where = "response_format.json_schema.schema"
        raise BadRequest(f"{where} must be an object.", param=where)
    return {"type": "json_schema", "schema": enforceable(schema)}
