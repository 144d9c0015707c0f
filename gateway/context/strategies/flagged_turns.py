"""Leaves out answers that a client reported as wrong (`context.flagged_turns`), so that a model does not rely on
them.

A note replaces the answer's text in all later requests of the conversation. The note is first sent in a request in
which the change costs little: the answer was never sent before, the provider's cache has expired, or few tokens
follow after the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gateway.context.cuts.session import Cut
from gateway.context.estimate import estimate
from gateway.context.strategies.experiments import asks_for_thinking
from gateway.context.strategies.flags import Flag, Flags, conversation_of, digest_of
from gateway.context.strategies.relevance import contains_thinking, is_exempt
from gateway.domain.request import CompletionRequest, Turn
from gateway.domain.tenant import Tenant

MARK = "[This answer was reported as wrong and left out.]"
_DIALECTS = frozenset({"anthropic_messages", "openai_chat", "openai_responses"})
_READ, _WRITE = 0.1, 1.25
"""Prices per token relative to plain input. At no provider is the difference between the two prices larger."""
_MOST_SPENT = 0.04
"""Maximum cost of the change, as a share of the cost of the session's input so far, while the prompt may be cached.
Cuts have this limit too."""


class FlaggedTurns:
    """Implements `Strategy` for answers that were reported as wrong."""

    def __init__(self, flags: Flags, switched_off: Callable[[str], bool] = lambda team: False) -> None:
        self._flags, self._switched_off = flags, switched_off
        self._counts = {"flagged_left_out": 0, "flagged_waiting": 0}

    def stats(self) -> dict[str, int]:
        return {"flagged_conversations": len(self._flags), **self._counts}

    async def cut(self, request: CompletionRequest, tenant: Tenant, found: Cut) -> Cut:
        """Return `found` with a note in place of each answer that was reported as wrong, where this costs little."""
        if tenant.policy.context.flagged_turns == "keep" or not self._flags or request.dialect not in _DIALECTS:
            return found
        conversation = conversation_of(request, tenant.key.lineage)
        flags = self._flags.of(conversation)
        if not flags or is_exempt(request, tenant) or self._switched_off(tenant.team):
            return found
        places = places_of(request.turns, flags)
        waiting = sorted(place for place, text in places.items() if not flags[text].left)
        taken = [] if _thinks(request) else waiting
        if taken and await self._flags.cached(conversation):
            taken = next((waiting[at:] for at, place in enumerate(waiting) if is_cheap(request.turns, place)), [])
        for place in taken:
            self._flags.leave_out(conversation, places[place])
        late = set(waiting) - set(taken)
        self._counts["flagged_waiting"] += len(late)
        gone = [place for place in places if place not in late and place not in found.texts]
        self._counts["flagged_left_out"] += len(gone)
        saved = sum(max(0, estimate(request.turns[place].text) - estimate(MARK)) for place in gone)
        return replace(found, texts={**dict.fromkeys(gone, MARK), **found.texts}, tokens=found.tokens + saved)


def places_of(turns: Sequence[Turn], flags: Mapping[bytes, Flag]) -> dict[int, bytes]:
    """Index of a turn that was reported as wrong → digest of its text. The last turn is never included, because a
    model continues it.

    Turns with tool calls, images, files or other content are not included either.
    """
    found: dict[int, bytes] = {}
    first = min(flag.turns for flag in flags.values())
    for place in range(first, len(turns) - 1):
        turn = turns[place]
        if turn.role != "assistant" or turn.calls or turn.images or turn.files or turn.asides or not turn.text:
            continue
        text = digest_of(turn.text)
        if (flag := flags.get(text)) is not None and place >= flag.turns and text not in found.values():
            found[place] = text
    return found


def is_cheap(turns: Sequence[Turn], place: int) -> bool:
    """Whether little is lost if the turn at `place` changes. If the prompt is cached, the provider must write the
    text from this turn to the end of the previous request again.
    """
    asked, spent, before = 0, 0.0, 0
    sizes = [len(turn.text) for turn in turns]
    for at, turn in enumerate(turns):
        if turn.role == "assistant" and at:
            total = sum(sizes[asked:at]) + before
            spent += _READ * before + _WRITE * (total - before)
            asked, before = at, total
    return (_WRITE - _READ) * sum(sizes[place + 1 : asked]) <= _MOST_SPENT * spent


def _thinks(request: CompletionRequest) -> bool:
    """Whether the request contains thinking, or asks for it. Then no further answer is left out, because a signature
    covers everything before the thinking.

    Notes that were sent before the thinking began stay in place, because the signature covers these notes.
    """
    return contains_thinking(request) or asks_for_thinking(request) or b'"effort"' in request.raw
