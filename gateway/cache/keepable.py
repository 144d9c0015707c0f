"""Which answers may be given again: whole ones that say something and ask for nothing."""

from __future__ import annotations

import orjson

from gateway.dialects.chat_assembly import MAX_BYTES
from gateway.domain.answer import Answer

_CLEAN = frozenset({"stop", "length"})


def keepable(answer: Answer) -> bytes | None:
    """The plain body of an answer worth keeping, else None."""
    if not answer.complete or answer.finish not in _CLEAN:
        return None
    completion = answer.completion()
    if completion is None or len(completion) > MAX_BYTES:
        return None
    try:
        choices = answer.choices or orjson.loads(completion)["choices"]
        message = choices[0]["message"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    if len(choices) != 1 or message.get("tool_calls") or message.get("function_call") or message.get("refusal"):
        return None
    content = message.get("content")
    return completion if isinstance(content, str) and content.strip() else None
