"""Reads usage, service tier and web searches of a chat completion or chunk."""

from __future__ import annotations

from typing import Any

from gateway.dialects.answers.service_tiers import normalised
from gateway.dialects.answers.usage import Fees, openai_usage
from gateway.domain.money.usage import Usage

SEARCHED: Fees = (("web_search", 1),)
"""The fees of an answer from a model that always searches the web. Such a model performs one search per answer."""
_NONE: Fees = ()
CITATION = b'"url_citation"'
"""A text that occurs only in the annotations of answers that used a web search. It cannot occur inside a JSON string,
because the quotes would be escaped there."""


def reported(reply: dict[str, Any], body: bytes = CITATION) -> Usage | None:
    """The usage of a plain answer; None if the answer contains no counts. `body`: bytes of the answer, searched for web
    citations."""
    usage, fees = reply.get("usage"), _NONE
    if CITATION in body:
        choices = reply.get("choices")
        fees = SEARCHED if type(choices) is list and any(map(_cites, choices)) else _NONE
    elif "service_tier" not in reply:
        return openai_usage(usage)
    return openai_usage(usage, tier=tier_of(reply), fees=fees)


def tier_of(reply: dict[str, Any]) -> str:
    """The service tier of a completion or chunk, in the format of `Usage.service_tier`. OpenAI repeats the tier in each
    chunk."""
    tier = reply.get("service_tier")
    return "" if tier is None or tier == "default" else normalised(tier)


def usage_in(chunk: dict[str, Any]) -> Any:
    """The usage object of a chunk; None if the chunk has no usage. In Groq's chunks, the usage is nested one level
    deeper."""
    if (usage := chunk.get("usage")) is not None:
        return usage
    beside = chunk.get("x_groq")
    return beside.get("usage") if type(beside) is dict else None


def _cites(choice: Any) -> bool:
    message = choice.get("message") if type(choice) is dict else None
    notes = message.get("annotations") if type(message) is dict else None
    return type(notes) is list and any(type(note) is dict and note.get("type") == "url_citation" for note in notes)
