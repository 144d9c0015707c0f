"""Decides which answers may be stored. An answer must be complete, not refused, confident, and without tool calls."""

from __future__ import annotations

import orjson

from gateway.dialects.clients import DIALECTS
from gateway.dialects.openai_chat.assembly import MAX_BYTES
from gateway.domain.answer import Answer
from gateway.domain.record import Attempt, Record
from gateway.domain.request import DialectName
from gateway.domain.text.declining import declines
from gateway.errors import BackendGarbage

_CLEAN = frozenset({"stop", "length"})
_ACTIONS = frozenset({"tool_calls", "function_call", "refusal"})
"""Fields of a message whose answer is not stored."""


def doubtful(record: Record, attempt: Attempt) -> bool:
    """Whether the backend's confidence in its answer is below the policy's minimum. Such an answer is not stored."""
    confidence, route = attempt.confidence, record.route
    return record.weak or (confidence is not None and route is not None and confidence < route.escalate_below)


def keepable(answer: Answer, dialect: DialectName) -> bytes | None:
    """The plain body of an answer that may be stored. None if the answer must not be stored."""
    if not answer.complete or answer.finish not in _CLEAN:
        return None
    completion = answer.completion()
    if completion is None or len(completion) > MAX_BYTES:
        return None
    try:
        choices = answer.choices or DIALECTS[dialect].choices(orjson.loads(completion))
        message = choices[0]["message"]
    except (orjson.JSONDecodeError, LookupError, TypeError, BackendGarbage):
        return None
    if len(choices) != 1 or (not _ACTIONS.isdisjoint(message) and any(map(message.get, _ACTIONS))):
        return None
    content = message.get("content")
    if not isinstance(content, str) or not (text := content.strip()) or declines(text):
        return None
    return completion
