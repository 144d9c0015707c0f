"""Converts choices between the formats of legacy completions (`text`) and chat completions (`message`)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def as_chat_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """Convert a choice with `text` to a chat choice. Other fields, including log-probabilities, keep their format."""
    others = {name: value for name, value in choice.items() if name != "text"}
    return {**others, "message": {"role": "assistant", "content": choice.get("text"), "refusal": None}}


def as_text_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """Convert a chat choice to a choice with `text`. The model's thinking is left out."""
    message = choice["message"]
    others = {name: value for name, value in choice.items() if name not in ("message", "index", "text")}
    return {"text": words(message), "index": choice.get("index", 0), **others}


def words(message: dict[str, Any]) -> str:
    """The text of a message or delta: its content or, if there is no content, its refusal."""
    text = message.get("content") or message.get("refusal")
    return text if type(text) is str else ""


def probability(choices: Iterable[dict[str, Any]]) -> float | None:
    """The mean probability of the generated tokens of all choices; None if the choices have no log-probabilities.
    Tokens of an echoed prompt do not count."""
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
