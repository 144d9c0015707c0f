"""Adapts chat messages and fields to the rules of a vendor's chat API."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from gateway.domain.chat_rules import ChatRules
from gateway.errors import BadRequest

_ID_BYTES = 8
_ID_LENGTH = 9


def refuse_fields(body: dict[str, Any], rules: ChatRules) -> None:
    """Raise BadRequest if the request has a field in `rules.refuses` with an effect. Empty values and `n: 1` have
    no effect.
    """
    for name in rules.refuses:
        if (value := body.get(name)) and not (name == "n" and value == 1):
            raise BadRequest(f"{name} is refused by this model's vendor: leave it out.", param=name)


def adapted(messages: list[Any], rules: ChatRules) -> list[Any]:
    """The messages as the vendor accepts them. A message that needs no change is returned as the same object."""
    id_of = _short_id(rules.call_id) if rules.call_id else None
    return [_adapted(message, rules, id_of) if type(message) is dict else message for message in messages]


def _adapted(message: dict[str, Any], rules: ChatRules, id_of: Callable[[Any], Any] | None) -> dict[str, Any]:
    if rules.of_role and message.get("role") == "developer":  # OpenAI's newer name of the role `system`
        message = {**message, "role": "system"}
    allowed = rules.of_role.get(message.get("role"))  # type: ignore[arg-type]
    kept = {
        name: value
        for name, value in message.items()
        if name not in rules.not_in_messages and (allowed is None or name in allowed)
    }
    if "refusal" in message and "refusal" not in kept and not kept.get("content") and not kept.get("tool_calls"):
        kept["content"] = message["refusal"] or ""
    if id_of is not None:
        if type(calls := kept.get("tool_calls")) is list:
            kept["tool_calls"] = [{**call, "id": id_of(call.get("id"))} for call in calls if type(call) is dict]
        if "tool_call_id" in kept:
            kept["tool_call_id"] = id_of(kept["tool_call_id"])
    return message if kept == message else kept


def _short_id(pattern: str) -> Callable[[Any], Any]:
    """Return a function that converts the id of a call to the id for the vendor. The same id always gives the same
    result, so that calls and results still belong together.
    """
    fits = re.compile(pattern).fullmatch

    def id_of(value: Any) -> Any:
        if type(value) is not str or fits(value):
            return value
        return blake2b(value.encode(errors="replace"), digest_size=_ID_BYTES).hexdigest()[:_ID_LENGTH]

    return id_of
