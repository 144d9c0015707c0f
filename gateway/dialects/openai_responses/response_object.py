"""Builds a Response object: the repeated request fields, the usage, the status and the output items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects.anthropic_messages.thinking import carrier
from gateway.dialects.openai_chat.message import signature_of
from gateway.dialects.openai_responses.thinking import pack
from gateway.dialects.openai_responses.tools import Tool, custom_input, known_tools
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest

Item = dict[str, Any]

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""OpenAI chat's finish reason → `incomplete_details.reason`."""

MOST_KEPT_BYTES = 4 * 2**20
"""Maximum bytes of a streamed response that is kept."""

_REPEATED: dict[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Request field that the response repeats → value for a request without this field."""


class Ids:
    """The ids of a response and of its items, derived from the request id. A stream and its stored copy have equal
    ids."""

    def __init__(self, request_id: str) -> None:
        self._stem = request_id.removeprefix("req_")

    @property
    def response(self) -> str:
        return f"resp_{self._stem}"

    def item(self, prefix: str, number: int) -> str:
        """The id of an item. `prefix`: kind of the item (rs, msg, fc, ctc). `number`: its index among items of this
        kind."""
        return f"{prefix}_{self._stem}{number:02x}"


def repeated(request: CompletionRequest) -> Item:
    """The request fields that the response repeats. A value in `request.echoed` has priority over the value in the
    request body.
    """
    body = request.body
    fields = {name: otherwise if body.get(name) is None else body[name] for name, otherwise in _REPEATED.items()}
    field, thinking = body.get("text") or {}, body.get("reasoning") or {}
    text = {"format": {"type": "text"}, "verbosity": "medium"}
    fields["text"] = {**text, **{name: value for name, value in field.items() if value is not None}}
    fields["reasoning"] = {"effort": None, "summary": None, **thinking}
    fields["tools"] = [_shown(tool) for tool in body.get("tools") or ()]
    return {**fields, **request.echoed}


def _shown(tool: Item) -> Item:
    return {"parameters": None, "strict": None, **tool} if tool.get("type") == "function" else tool


def response(
    request: CompletionRequest, *, response_id: str, created: int, model: str, status: str, output: list[Item]
) -> Item:
    """A whole Response object, except for usage and `incomplete_details`."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": output,
        **repeated(request),
        "usage": None,
    }


def ended(begun: Item, finish: str, usage: Usage | None, output: list[Item], now: int) -> Item:
    """The Response object `begun`, completed with the output, usage, and status. `finish`: the finish reason in OpenAI
    chat's terms. `now`: Unix seconds."""
    reason = INCOMPLETE.get(finish)
    whole = {
        **begun,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output,
        "usage": shown_usage(usage) if usage else None,
    }
    return whole if reason else {**whole, "completed_at": max(now, begun["created_at"])}


def shown_usage(usage: Usage) -> Item:
    """The usage in the format of Responses. In this format, cached tokens are part of the input, and reasoning is part
    of the output."""
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return {
        "input_tokens": usage.all_input,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": written},
        "output_tokens": usage.all_output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total,
    }


def reasoning_item(item_id: str, text: str, blocks: list[Item]) -> Item:
    """A reasoning item. `blocks`: thinking blocks signed by another vendor, to be packed into `encrypted_content`."""
    item: Item = {"id": item_id, "type": "reasoning"}
    item["summary"] = [{"type": "summary_text", "text": text}] if text else []
    return {**item, "encrypted_content": pack(blocks)} if blocks else item


def message_item(item_id: str, parts: list[Item], status: str) -> Item:
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": parts}


def text_part(text: str, logprobs: list[Item]) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def refusal_part(text: str) -> Item:
    return {"type": "refusal", "refusal": text}


def call_item(item_id: str, call_id: str, tool: Tool, arguments: str, status: str) -> Item:
    """A function call item. `arguments`: the text that the model generated, unchanged."""
    item: Item = {"id": item_id, "type": "function_call", "status": status}
    return {**item, "arguments": arguments, "call_id": call_id, **_named(tool)}


def custom_item(item_id: str, call_id: str, tool: Tool, text: str, status: str) -> Item:
    item: Item = {"id": item_id, "type": "custom_tool_call", "status": status}
    return {**item, "call_id": call_id, **_named(tool), "input": text}


def _named(tool: Tool) -> Item:
    return {"name": tool.name, "namespace": tool.namespace} if tool.namespace else {"name": tool.name}


def input_of(arguments: str) -> str:
    """The text for a custom tool. In chat, the custom tool is sent as a function with one text parameter; `arguments`
    are the arguments of a call of this function."""
    try:
        return custom_input(orjson.loads(arguments), arguments)
    except orjson.JSONDecodeError:
        return arguments


def logprobs_of(choice: Mapping[str, Any]) -> list[Item]:
    """The log-probabilities of a choice in the format of Responses. The field `bytes` is added where it is missing."""
    value = choice.get("logprobs")
    entries = value.get("content") if type(value) is dict else None
    return [{**_entry(entry), "top_logprobs": _tops(entry)} for entry in entries or () if _is_entry(entry)]


def _is_entry(entry: Any) -> bool:
    return type(entry) is dict and type(entry.get("token")) is str and type(entry.get("logprob")) in (int, float)


def _entry(entry: Item) -> Item:
    token: str = entry["token"]
    return {"token": token, "logprob": entry["logprob"], "bytes": entry.get("bytes") or list(token.encode())}


def _tops(entry: Item) -> list[Item]:
    return [_entry(top) for top in entry.get("top_logprobs") or () if _is_entry(top)]


def output_items(request: CompletionRequest, choice: Item, ids: Ids, status: str) -> list[Item]:
    """The output items for a complete chat choice: thinking, message, calls."""
    message = choice["message"]
    output: list[Item] = []
    thought, blocks = thought_in(message), message.get("thinking_blocks") or []
    if thought or blocks:
        output.append(reasoning_item(ids.item("rs", 0), thought, blocks))
    calls = message.get("tool_calls") or []
    if parts := _parts(choice, anyway=not (output or calls)):
        output.append(message_item(ids.item("msg", 0), parts, status))
    known = known_tools(request.body)
    for number, call in enumerate(calls):
        if signature := signature_of(call):
            output.append(reasoning_item(ids.item("rs", number + 1), "", [carrier(signature)]))
        output.append(_called(call, ids, number, known, status))
    return output


def thought_in(message: Item) -> str:
    """The thinking in a chat message or delta. Servers use two names for this field; both are read."""
    return _text(message, "reasoning_content") or _text(message, "reasoning")


def _text(message: Item, name: str) -> str:
    value = message.get(name)
    return value if type(value) is str else ""


def _parts(choice: Item, *, anyway: bool) -> list[Item]:
    """The content parts of a choice. `anyway`: whether to return a part with an empty text if the choice has no
    content."""
    text, refusal = _text(choice["message"], "content"), _text(choice["message"], "refusal")
    parts = [text_part(text, logprobs_of(choice))] if text or (anyway and not refusal) else []
    return [*parts, refusal_part(refusal)] if refusal else parts


def _called(call: Item, ids: Ids, number: int, known: Mapping[str, Tool], status: str) -> Item:
    function = call.get("function") or {}
    name, arguments = _text(function, "name"), _text(function, "arguments")
    call_id = _text(call, "id") or ids.item("call", number)
    tool = known.get(name) or Tool(name)
    if tool.custom:
        return custom_item(ids.item("ctc", number), call_id, tool, input_of(arguments), status)
    return call_item(ids.item("fc", number), call_id, tool, arguments, status)
