"""Sends an error of a tool whole only once (`context.repeated_errors`).

An agent that repeats a failing call gets the same error again and again. A note replaces each later copy of the error.
It replaces the copy already in the first request that contains the copy. So text that was sent before does not change,
and stays in the provider's cache.

The replacement depends only on the history, so every worker makes the same one. If trimming would remove the only whole
copy, all copies are sent whole, and the request is trimmed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gateway.context.cuts.session import Cut
from gateway.context.estimate import estimate
from gateway.context.strategies.relevance import contains_thinking, is_exempt
from gateway.domain.request import CompletionRequest, Turn
from gateway.domain.routing.route import ContextPlan
from gateway.domain.tenant import Tenant

_LEAST_CHARACTERS = 300
"""Minimum characters of an error that is replaced."""
_SHOWN = 80
"""Number of characters at the beginning of an error that the note repeats."""
_FLAG = b'"is_error"'


class RepeatedErrors:
    """Implements `Strategy` for errors that are repeated word for word."""

    def __init__(self, switched_off: Callable[[str], bool] = lambda team: False) -> None:
        self._switched_off = switched_off
        self._counts = {"errors_repeated": 0}

    def stats(self) -> dict[str, int]:
        return dict(self._counts)

    async def cut(self, request: CompletionRequest, tenant: Tenant, found: Cut) -> Cut:
        """Return `found` with a note in place of each error that an earlier result in the prompt contains whole."""
        if tenant.policy.context.repeated_errors == "keep" or request.dialect != "anthropic_messages":
            return found
        if _FLAG not in request.raw or contains_thinking(request) or self._switched_off(tenant.team):
            return found
        if is_exempt(request, tenant):
            return found
        texts, repeats, tokens, whole = dict[int, str](), dict[int, int](), found.tokens, dict[str, int]()
        for place, turn in enumerate(request.turns):
            if place in found.texts or not _is_error(request, turn):
                continue
            if (first := whole.setdefault(turn.text, place)) == place:
                continue
            texts[place], repeats[place] = noted(turn.text), first
            tokens += _saved(turn.text)
        self._counts["errors_repeated"] += len(texts)
        return replace(found, texts={**texts, **found.texts}, tokens=tokens, repeats=repeats) if texts else found


def names_missing(request: CompletionRequest, found: Cut, plan: ContextPlan) -> bool:
    """Whether `plan` would send a note of `found` about an error whose whole text is no longer in the request. This
    happens if the plan trims the turn with the whole text."""
    trimmed = plan.drop | plan.replace.keys()
    turns = request.turns
    return any(
        turns[first].index in trimmed and turns[place].index not in plan.drop for place, first in found.repeats.items()
    )


def without_notes(request: CompletionRequest, found: Cut) -> Cut:
    """Return `found` without its notes about repeated errors."""
    texts = {place: text for place, text in found.texts.items() if place not in found.repeats}
    saved = sum(_saved(request.turns[place].text) for place in found.repeats)
    return replace(found, texts=texts, tokens=found.tokens - saved, repeats={})


def noted(text: str) -> str:
    """The note that replaces the error `text`."""
    return f"{text[:_SHOWN]}\n[… the same error as an earlier call returned; the gateway left out its other text …]"


def _saved(text: str) -> int:
    return max(0, estimate(text) - estimate(noted(text)))


def _is_error(request: CompletionRequest, turn: Turn) -> bool:
    """Whether a turn is the result of one call, and the client has marked it as an error."""
    if len(turn.results) != 1 or turn.instructs or turn.images or turn.files or len(turn.text) < _LEAST_CHARACTERS:
        return False
    content = request.body["messages"][turn.index].get("content")
    parts = [part for part in content if type(part) is dict] if type(content) is list else []
    return any(part.get("type") == "tool_result" and part.get("is_error") is True for part in parts)
