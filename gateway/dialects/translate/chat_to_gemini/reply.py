"""Converts Gemini's answers to OpenAI's: parts, finish reasons, usage."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.answers.usage import openai_usage
from gateway.dialects.openai_chat.message import signed
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage, FaultyAnswer

Block = dict[str, Any]

_FINISH = {"STOP": "stop", "MAX_TOKENS": "length"}
_FILTERED = frozenset(
    {
        *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
    }
)
"""Gemini's finish reasons that mean that Google withheld the answer."""
_UNSPECIFIED, _LONGEST_REASON = "FINISH_REASON_UNSPECIFIED", 64
_BESIDE = frozenset({"thought", "thoughtSignature"})
"""Fields of a part that are no content."""


def finish_of(reason: Any, *, called: bool) -> str:
    """OpenAI's finish reason for Gemini's `reason`; empty if the answer has not finished. `called`: whether the answer
    contains a call.

    If the model failed after a part of the answer, the finish reason is `stop`. A failure without any answer is handled
    elsewhere (`fault`).
    """
    if type(reason) is not str or reason == _UNSPECIFIED:
        return ""
    if reason in _FILTERED:
        return "content_filter"
    found = _FINISH.get(reason, "stop")
    return "tool_calls" if called and found == "stop" else found


def fault(reason: Any) -> FaultyAnswer | None:
    """The error for an answer without content. `reason`: the reason why the answer ended, such as
    `MALFORMED_FUNCTION_CALL`, `OTHER`, or a reason that this version does not know. None if this reason explains why
    the answer is empty."""
    if type(reason) is not str or reason in _FILTERED or reason in _FINISH or reason == _UNSPECIFIED:
        return None
    return FaultyAnswer(f"The model ended without an answer ({reason[:_LONGEST_REASON]}).")


def is_content(part: Block) -> bool:
    """Whether a part belongs to the answer itself: a call, a picture, code, or a text that is not empty and not a
    thought.
    """
    return not part.get("thought") and any(value for name, value in part.items() if name not in _BESIDE)


def blocked(reply: dict[str, Any]) -> str:
    """The reason why Gemini did not answer the prompt; empty if Gemini answered."""
    feedback = reply.get("promptFeedback")
    reason = feedback.get("blockReason") if type(feedback) is dict else None
    return f"The provider blocked the prompt ({reason})." if type(reason) is str else ""


def counts(given: Any) -> dict[str, Any] | None:
    """An OpenAI usage object for Gemini's; None if `given` contains no counts. Gemini counts thinking outside of the
    answer."""
    if type(given) is not dict or ("promptTokenCount" not in given and "totalTokenCount" not in given):
        return None
    prompt, tools = given.get("promptTokenCount"), given.get("toolUsePromptTokenCount")
    answer_tokens, thoughts = given.get("candidatesTokenCount"), given.get("thoughtsTokenCount")
    return {
        "prompt_tokens": _sum(prompt, tools),
        "completion_tokens": _sum(answer_tokens, thoughts),
        "total_tokens": given.get("totalTokenCount"),
        "prompt_tokens_details": {"cached_tokens": given.get("cachedContentTokenCount")},
        "completion_tokens_details": {"reasoning_tokens": thoughts},
    }


def usage(given: Any) -> Usage | None:
    return openai_usage(counts(given))


def _sum(one: Any, other: Any) -> Any:
    """The sum of two counts, one of which may be missing. If one of the values is not a number, this value is
    returned, so that a later check finds it."""
    odd = next((each for each in (one, other) if each is not None and type(each) is not int), None)
    return odd if odd is not None else (one or 0) + (other or 0)


def candidate(reply: dict[str, Any]) -> dict[str, Any]:
    """The first answer in `reply`; empty if `reply` contains no answer. Raises TypeError, LookupError,
    AttributeError."""
    candidates: list[dict[str, Any]] = reply.get("candidates") or [{}]
    return candidates[0]


def parts(answer: dict[str, Any]) -> list[Block]:
    found: list[Block] = (answer.get("content") or {}).get("parts") or []
    return found


def call(part: Block, id: str) -> dict[str, Any]:
    """A function call in the format of chat. `part`: Gemini's part with the call. `id`: the id of the call."""
    given = part["functionCall"]
    arguments = orjson.dumps(given.get("args") or {}).decode()
    function = {"name": given["name"], "arguments": arguments}
    found = {"id": id, "type": "function", "function": function}
    signature = part.get("thoughtSignature")
    return signed(found, signature) if signature else found


def completion(reply: dict[str, Any], shared: dict[str, Any], name: str) -> dict[str, Any]:
    """The chat completion for a whole answer. `shared`: the fields other than `choices`. `name`: prefix for the ids of
    calls.

    Raises BackendGarbage if `reply` is not an answer. Raises FaultyAnswer if no candidate has content and one of them
    ended with a failure.
    """
    reason = blocked(reply)
    if not reason and not reply.get("candidates"):
        raise BackendGarbage("The backend answered with JSON that is not Gemini's answer.")
    try:
        if not reason and (failure := _fault_of_all(reply["candidates"])):
            raise failure
        choices = [
            _choice(each, reason, f"{name}{index}_" if index else name, index)
            for index, each in enumerate(reply.get("candidates") or [{}])
        ]
    except (LookupError, TypeError, AttributeError) as error:
        raise BackendGarbage("The backend answered with a part that is not one of Gemini's.") from error
    return {**shared, "choices": choices}


def _fault_of_all(answers: list[dict[str, Any]]) -> FaultyAnswer | None:
    if any(is_content(part) for each in answers for part in parts(each)):
        return None
    return next(filter(None, (fault(each.get("finishReason")) for each in answers)), None)


def _choice(answer: dict[str, Any], reason: str, name: str, index: int) -> dict[str, Any]:
    message = _message(parts(answer), name)
    finish = "content_filter" if reason else finish_of(answer.get("finishReason"), called="tool_calls" in message)
    choice = {"index": index, "message": {**message, "refusal": reason or None}, "logprobs": None}
    return {**choice, "finish_reason": finish or None}


def _message(given: list[Block], name: str) -> dict[str, Any]:
    texts = [part["text"] for part in given if type(part.get("text")) is str and not part.get("thought")]
    thoughts = [part["text"] for part in given if type(part.get("text")) is str and part.get("thought")]
    made = [part for part in given if "functionCall" in part]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if made:
        message["tool_calls"] = [call(part, f"{name}{number}") for number, part in enumerate(made)]
    return message
