"""Counts the input tokens of a request, turn by turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress, repeat
from operator import attrgetter, is_

import orjson

from gateway.context.attachments.asides import asides, made
from gateway.context.attachments.beside import guesses
from gateway.context.attachments.vendors import IMAGE_TOKENS
from gateway.context.count import Counter
from gateway.context.estimate import estimate, estimate_lines
from gateway.context.vocabulary import EncodingName
from gateway.dialects.facts import FACTS
from gateway.domain.request import CompletionRequest, Turn

TURN_TOKENS = 4
"""Tokens around a message in OpenAI's chat format: the role and the separators."""
REQUEST_TOKENS = 3
"""Tokens with which a chat template asks the model to begin its answer."""

_DECLARED = (
    *("tools", "functions", "response_format"),
    *("text", "output_config", "output_format"),  # schemas in Responses and at Anthropic
    *("prediction", "documents", "chat_template", "chat_template_kwargs", "suffix"),  # OpenAI's and vLLM's
)
"""Names of the fields, besides the conversation, whose text reaches the model or is billed."""
_DECLARING = frozenset(_DECLARED)
_WHOLE, _ASIDES = attrgetter("whole"), attrgetter("asides")
_IMAGES, _FILES = attrgetter("images"), attrgetter("files")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Exact numbers of tokens. `texts[i]`: the part of `turns[i]` that can be shortened."""

    turns: list[int]
    texts: list[int]
    fixed: int
    """Tokens of the tool declarations and the schemas, and of the text that a chat template adds around them."""

    @property
    def total(self) -> int:
        return sum(self.turns) + self.fixed


async def sizes(
    request: CompletionRequest, counter: Counter, encoding: EncodingName, rooms: Mapping[int, int] | None = None
) -> Sizes:
    """The exact numbers of tokens of a request. `rooms`: index of a turn → tokens that are reserved for its
    attachments.
    """
    rooms = rooms or {}
    turns = request.turns
    many = len(turns)
    texts = [turn.text for turn in turns]
    counted = await counter.counts([*texts, *(calls(request, turn) for turn in turns), declared(request)], encoding)
    whole = [
        counted[place] + counted[many + place] + TURN_TOKENS + turn.images * IMAGE_TOKENS + rooms.get(turn.index, 0)
        for place, turn in enumerate(turns)
    ]
    return Sizes(whole, counted[:many], counted[-1] + REQUEST_TOKENS)


def estimated(request: CompletionRequest) -> int:
    """The estimated number of tokens of the whole input. It is computed only once for each request."""
    known = request.estimated_tokens
    if known is None:
        turns = request.turns
        around = TURN_TOKENS * len(turns) + REQUEST_TOKENS if request.one_context else 0
        parts = _parts(request)
        if not _DECLARING.isdisjoint(request.body) and (more := declared(request)):
            parts.append(more)
        if (images := sum(map(_IMAGES, turns))) or any(map(_FILES, turns)):
            beside = request.estimated_beside = IMAGE_TOKENS * images + sum(guesses(request).values())
            around += beside
        if any(map(_ASIDES, turns)):
            request.asides = asides(request)
        known = request.estimated_tokens = estimate_lines(parts) + around
    return known


def _parts(request: CompletionRequest) -> list[str]:
    """The text and the calls of each turn. Only turns without `whole` are visited: those that no earlier request of the
    conversation had."""
    parts = list(map(_WHOLE, request.turns))
    for place in compress(range(len(parts)), map(is_, parts, repeat(None))):
        parts[place] = _whole(request, request.turns[place])
    return parts


def estimated_turn(request: CompletionRequest, turn: Turn) -> int:
    return estimate(turn.text) + estimate(calls(request, turn)) + TURN_TOKENS + turn.images * IMAGE_TOKENS


def fixed_tokens(request: CompletionRequest) -> int:
    """Estimated tokens of tool declarations, schemas and similar fields."""
    return 0 if _DECLARING.isdisjoint(request.body) else estimate(declared(request))


def declared(request: CompletionRequest) -> str:
    """The tools, schemas and similar fields of a request, as JSON. This text is slightly longer than the one that a
    provider's chat template makes of them. The next request of the conversation finds it in `notes`.
    """
    body, continued = request.body, request.continued
    if FACTS[request.dialect].opaque:  # the whole text of a passed-through request is in its only turn
        return ""
    values = [value for name in _DECLARED if (value := body.get(name))]
    known, text = ([], "") if continued is None else continued.earlier.declared
    if len(values) != len(known) or not all(map(is_, values, known)):
        text = "".join([orjson.dumps(value).decode() for value in values])
    if request.notes is not None:
        request.notes.declared = values, text
    return text


def calls(request: CompletionRequest, turn: Turn) -> str:
    """The tool calls of a turn, and the thinking before the calls, as JSON. Works for every dialect. Empty for most
    turns."""
    return _whole(request, turn)[len(turn.text) + 1 :]


def _whole(request: CompletionRequest, turn: Turn) -> str:
    """`turn.whole`, made if it is missing: the text, then a line break and the calls, if any."""
    if turn.whole is None:
        turn.whole = turn.text
        if (turn.calls or turn.asides) and turn.index >= 0:
            message = request.body[request.input_field][turn.index]
            if type(message) is dict and (made_here := made(message)):
                turn.whole = f"{turn.text}\n{orjson.dumps(made_here).decode()}"
    return turn.whole
