"""OpenAI Responses client with an OpenAI chat backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import orjson

from gateway.dialects.anthropic_messages.thinking import carried
from gateway.dialects.openai_responses.items import chat_messages, shortened
from gateway.dialects.openai_responses.request import INSTRUCTIONS, kept, wants_logprobs
from gateway.dialects.openai_responses.response_object import INCOMPLETE, Ids, ended, output_items, response
from gateway.dialects.openai_responses.thinking import SEALED, pack, unpack
from gateway.dialects.openai_responses.tools import chat_format, chat_tools
from gateway.dialects.translate.responses_to_chat.writer import ResponsesWriter
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BadRequest

_TRANSLATED = frozenset(
    {
        *("model", "input", "instructions", "stream", "max_output_tokens", "top_logprobs", "include"),
        *("tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
    }
)
_WITHOUT_EQUIVALENT = frozenset(
    {
        *("store", "metadata", "background", "client_metadata"),  # handled by the gateway itself
        *("truncation", "context_management"),  # the gateway trims by the team's policy
        *("stream_options", "prompt_cache_options"),  # optional hints
        "max_tool_calls",  # limits built-in tools, which chat does not have
    }
)
_IMPOSSIBLE = {
    "previous_response_id": "send the conversation as input",
    "moderation": "leave it out",
}
"""Name of a field that only OpenAI's own servers support → the remedy that the error text names."""


_CHATS = frozenset(
    {
        *("messages", "n", "functions", "function_call", "response_format", "logprobs", "reasoning_effort"),
        *("max_tokens", "max_completion_tokens", "modalities", "audio", "prediction", "web_search_options"),
    }
)
"""Names of chat fields that Responses does not have, or has in another form."""


class ResponsesToChat:
    """Implements `Translation` from OpenAI Responses to chat."""

    client: DialectName = "openai_responses"
    fields: Mapping[str, str] = {
        "max_completion_tokens": "max_output_tokens",
        "messages": "input",
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
    }

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns Unix seconds. The time is used for answers without a creation time."""
        self._clock = clock

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        """The chat request. Raises BadRequest with the name of a field that chat does not support."""
        body = request.body
        for name, remedy in _IMPOSSIBLE.items():
            if body.get(name) is not None:
                raise BadRequest(f"This model's provider knows no {name}: {remedy}.", param=name)
        converted: dict[str, Any] = {"model": request.model, "messages": _messages(body, plan)}
        if request.stream:
            converted["stream"] = True
        if request.max_output_tokens is not None:
            converted["max_completion_tokens"] = request.max_output_tokens
        converted |= {**chat_tools(body), **chat_format(body), **_logprobs(body)}
        effort = (body.get("reasoning") or {}).get("effort")
        if effort is not None:
            if type(effort) is not str:
                raise BadRequest("reasoning.effort must be a string such as 'low'.", param="reasoning.effort")
            converted["reasoning_effort"] = effort
        return converted | _others(body)

    def plain(self, request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> bytes:
        choice, ids = completion["choices"][0], Ids(request.id)
        finish, created = choice.get("finish_reason") or "", completion.get("created")
        status = "incomplete" if finish in INCOMPLETE else "completed"
        begun = response(
            request,
            response_id=ids.response,
            created=created if type(created) is int and created > 0 else int(self._clock()),
            model=completion.get("model") or request.model,
            status=status,
            output=[],
        )
        output = output_items(request, choice, ids, status)
        return orjson.dumps(ended(begun, finish, usage, output, int(self._clock())))

    def writer(self, request: CompletionRequest) -> ResponsesWriter:
        return ResponsesWriter(request, self._clock)


def _messages(body: Mapping[str, Any], plan: ContextPlan | None) -> list[dict[str, Any]]:
    value, instructions = body.get("input"), body.get("instructions")
    items = [{"role": "user", "content": value}] if type(value) is str else value or []
    if plan is None or not plan.touched:
        return chat_messages(instructions, enumerate(items))
    if INSTRUCTIONS in plan.replace:
        instructions = plan.replace[INSTRUCTIONS]
    places = kept(items, plan.drop)
    silent = {*places}.difference(kept(items, plan.drop | plan.no_thinking))
    return chat_messages(instructions, [(place, _changed(items[place], place, plan, silent)) for place in places])


def _changed(item: dict[str, Any], place: int, plan: ContextPlan, silent: AbstractSet[int]) -> dict[str, Any]:
    """The item at index `place`, in the form that `plan` requires. `silent`: the indexes of items that lose their
    thinking. Google's signatures stay, as in chat."""
    if place in plan.replace:
        return shortened(item, plan.replace[place])
    if place in silent and (blocks := unpack(item.get(SEALED))):
        return {**item, SEALED: pack([block for block in blocks if carried(block)])}
    return item


def _logprobs(body: Mapping[str, Any]) -> dict[str, Any]:
    if not wants_logprobs(body):
        return {}
    top = body.get("top_logprobs")
    return {"logprobs": True, "top_logprobs": top} if top else {"logprobs": True}


def _others(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have the same meaning in both dialects, and unknown fields. Some servers support fields that the
    gateway does not know."""
    known = _TRANSLATED | _WITHOUT_EQUIVALENT
    for name in _CHATS.intersection(body):
        raise BadRequest(f"{name} is a field of chat completions, which Responses does not have.", param=name)
    return {name: value for name, value in body.items() if name not in known and value is not None}
