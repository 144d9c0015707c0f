"""Converts a response to a chat completion: items, finish reasons, usage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.dialects.answers.usage import shown
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.openai_responses.usage import reported
from gateway.errors import BackendGarbage

BETWEEN_THOUGHTS = "\n\n"
"""The separator between two parts of the thinking. Parts of the answer are joined without a separator."""

_REASONS = {"max_output_tokens": "length"}
"""Reason in Responses for an incomplete answer → finish reason in chat. Unknown reasons keep their names."""
_OVER = (None, "completed", "incomplete")
CALL_KINDS = {"function_call": ("function", "arguments"), "custom_tool_call": ("custom", "input")}
"""Type of an item → type of the tool call in chat, and name of the field with the arguments. The field has the same
name in both formats."""


def load_response(body: bytes) -> dict[str, Any]:
    """The response in the body of a 2xx answer. Raises BackendGarbage if the body is not a response, or if the response
    is unfinished."""
    response = load_reply(body)
    check(response)
    return response


def check(response: dict[str, Any]) -> None:
    """Raises BackendGarbage if `response` is not a response or is unfinished."""
    if type(response.get("output")) is not list:
        raise BackendGarbage("The backend answered with JSON that is not a response.")
    if response.get("status") not in _OVER:
        raise BackendGarbage(f"The backend answered with a response that is {response['status']}.")


def finish_of(response: dict[str, Any]) -> str:
    """The finish reason in OpenAI chat's terms."""
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        reason = details.get("reason") if type(details) is dict else None
        return _REASONS.get(reason, reason) if type(reason) is str else "length"
    return "tool_calls" if any(item.get("type") in CALL_KINDS for item in _items(response)) else "stop"


def as_chat_usage(value: object) -> dict[str, Any] | None:
    """Convert a usage object of Responses to one of chat. None if `value` is not an object."""
    if type(value) is not dict:
        return None
    return {
        "prompt_tokens": value.get("input_tokens"),
        "completion_tokens": value.get("output_tokens"),
        "total_tokens": value.get("total_tokens"),
        "prompt_tokens_details": value.get("input_tokens_details"),
        "completion_tokens_details": value.get("output_tokens_details"),
    }


def chat_completion(response: dict[str, Any]) -> dict[str, Any]:
    """A chat completion from a whole response. Raises BackendGarbage for unknown item formats."""
    completion: dict[str, Any] = {
        "id": response.get("id"),
        "object": "chat.completion",
        "created": _seconds(response.get("created_at")),
        "model": response.get("model"),
        "choices": choices(response),
    }
    if response.get("service_tier"):
        completion["service_tier"] = response["service_tier"]
    if shown(reported(response)):
        completion["usage"] = as_chat_usage(response["usage"])
    return completion


def shared_by_chunks(response: dict[str, Any]) -> dict[str, Any]:
    """The fields that are the same in all chunks of a chat stream."""
    return {
        "id": response.get("id", ""),
        "object": "chat.completion.chunk",
        "created": _seconds(response.get("created_at")),
        "model": response.get("model", ""),
    }


def _seconds(created_at: object) -> int:
    return int(created_at) if isinstance(created_at, int | float) else 0


def choices(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The answer in the response, as the only choice of a chat completion. Raises BackendGarbage for unknown item
    formats."""
    try:
        return [_choice(response)]
    except (TypeError, KeyError, AttributeError) as error:
        raise BackendGarbage("The backend answered with items that are not those of Responses.") from error


def _choice(response: dict[str, Any]) -> dict[str, Any]:
    parts = list(_parts(response))
    text = [part["text"] for kind, part in parts if kind == "output_text"]
    refusal = [part["refusal"] for kind, part in parts if kind == "refusal"]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(text) if text else None,
        "refusal": "".join(refusal) if refusal else None,
    }
    if thoughts := [part["text"] for kind, part in parts if kind in ("summary_text", "reasoning_text")]:
        message["reasoning_content"] = BETWEEN_THOUGHTS.join(thoughts)
    if notes := [chat_annotation(note) for _, part in parts for note in part.get("annotations") or ()]:
        message["annotations"] = notes
    if calls := [tool_call(item) for item in _items(response) if item.get("type") in CALL_KINDS]:
        message["tool_calls"] = calls
    logprobs = [row for _, part in parts for row in part.get("logprobs") or ()]
    return {
        "index": 0,
        "message": message,
        "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
        "finish_reason": finish_of(response),
    }


def _items(response: dict[str, Any]) -> list[dict[str, Any]]:
    output = response.get("output")
    return [item for item in output if type(item) is dict] if type(output) is list else []


def _parts(response: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the type and the content of each part of the response that has text."""
    for item in _items(response):
        for part in (*(item.get("summary") or ()), *(item.get("content") or ())):
            kind = part.get("type") if type(part) is dict else None
            if type(kind) is str and type(part.get("refusal" if kind == "refusal" else "text")) is str:
                yield kind, part


def tool_call(item: dict[str, Any]) -> dict[str, Any]:
    """A function call or a custom tool call. The arguments are the text that the model generated, unchanged."""
    kind, value = CALL_KINDS[item["type"]]
    inner = {"name": item.get("name"), value: item.get(value) or ""}
    return {"id": item.get("call_id") or item.get("id"), "type": kind, kind: inner}


def chat_annotation(note: dict[str, Any]) -> dict[str, Any]:
    """A citation in the format of chat. In this format, the citation is nested one level deeper."""
    kind = str(note["type"])
    return {"type": kind, kind: {name: value for name, value in note.items() if name != "type"}}
