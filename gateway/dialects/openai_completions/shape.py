"""Converts a choice between legacy completion (`text`) and chat completion (`message`)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def as_chat_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """Whatever stands beside the text stays as it is, log-probabilities in their own shape included."""
    beside = {name: value for name, value in choice.items() if name != "text"}
    return {**beside, "message": {"role": "assistant", "content": choice.get("text"), "refusal": None}}


def as_text_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """A message's words; thoughts have no place in a text."""
    message = choice["message"]
    beside = {name: value for name, value in choice.items() if name not in ("message", "index", "text")}
    return {"text": words(message), "index": choice.get("index", 0), **beside}


def words(message: dict[str, Any]) -> str:
    """Of a message or a delta."""
    said = message.get("content") or message.get("refusal")
    return said if type(said) is str else ""


def probability(choices: Iterable[dict[str, Any]]) -> float | None:
    """Mean probability of the tokens of all choices; None without log-probabilities. Tokens of an echo have none."""
    found = [
        logprob
        for choice in choices
        if type(choice.get("logprobs")) is dict
        for logprob in _listed(choice["logprobs"].get("token_logprobs"))
        if type(logprob) in (int, float)
    ]
    return sum(math.exp(min(logprob, 0.0)) for logprob in found) / len(found) if found else None


def _listed(value: object) -> list[Any]:
    return value if type(value) is list else []
