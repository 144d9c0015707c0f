"""Reads a generated message: text, confidence, finish reason."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

TEXT_FIELDS = ("reasoning_content", "reasoning", "content", "refusal")
"""Fields with generated text, in the order in which models generate them."""


def generated_text(message: dict[str, Any]) -> str:
    """All text that the model generated, including tool names and arguments."""
    texts = [message.get(field) for field in TEXT_FIELDS]
    for call in (*objects(message.get("tool_calls")), {"function": message.get("function_call")}):
        function = call.get("function")
        if type(function) is dict:
            texts += (function.get("name"), function.get("arguments"))
    return "\n".join(text for text in texts if type(text) is str and text)


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list. Other values are ignored, because a backend may send anything."""
    return [item for item in value if type(item) is dict] if type(value) is list else []


def signed(call: dict[str, Any], signature: str) -> dict[str, Any]:
    """`call` with Google's signature, in the field that Google's OpenAI endpoint uses."""
    return {**call, "extra_content": {"google": {"thought_signature": signature}}}


def signature_of(call: dict[str, Any]) -> str:
    """Google's signature of a call; empty if there is none."""
    extra = call.get("extra_content")
    google = extra.get("google") if type(extra) is dict else None
    signature = google.get("thought_signature") if type(google) is dict else None
    return signature if type(signature) is str else ""


def overall_finish(reasons: Iterable[object]) -> str:
    """One finish reason for all choices: the first known reason that is not `stop`. If there is none, `stop`; empty if
    no reason is known."""
    known = [reason for reason in reasons if type(reason) is str and reason]
    return next((reason for reason in known if reason != "stop"), known[0] if known else "")


def mean_probability(choices: Iterable[dict[str, Any]]) -> float | None:
    """The mean probability of the tokens of all choices; None if the choices have no log-probabilities."""
    logprobs = [
        entry["logprob"]
        for choice in choices
        if type(choice.get("logprobs")) is dict
        for entry in objects(choice["logprobs"].get("content"))
        if type(entry.get("logprob")) in (int, float)
    ]
    if not logprobs:
        return None
    return sum(math.exp(min(logprob, 0.0)) for logprob in logprobs) / len(logprobs)
