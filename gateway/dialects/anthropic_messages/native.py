"""Anthropic client with an Anthropic backend: bytes pass through, and only changed keys are replaced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.plain import Plain
from gateway.dialects.anthropic_messages.relay import MessagesRelay
from gateway.dialects.anthropic_messages.thinking import UNSIGNED
from gateway.dialects.anthropic_messages.turns import shortened
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.openai_chat.native import content_headers, quoted
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.translate.chat_to_messages.reply import chat_completion
from gateway.dialects.translate.chat_to_messages.translator import VERSION, ChatToMessages
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused

_MARK = UNSIGNED.encode()
_LEAST_BUDGET = 1024
"""Smallest thinking budget, in tokens, that Anthropic accepts. `max_tokens` must be larger than the budget."""


class MessagesToMessages:
    """Implements `Translator` from Anthropic messages to itself."""

    client: DialectName = "anthropic_messages"
    backend: DialectName = "anthropic_messages"

    def __init__(self) -> None:
        self._refusals = ChatToMessages()

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        """`logprobs` is ignored, because Anthropic has none."""
        changes: dict[str, bytes] = {}
        if model != request.model:
            changes["model"] = quoted(model)
        if max_output_tokens is not None:
            changes["max_tokens"] = b"%d" % max_output_tokens
            changes |= _less_thinking(request.body.get("thinking"), max_output_tokens)
        if (plan is not None and plan.touched) or request.raw.rfind(_MARK) >= 0:
            changes["messages"] = _messages(request, plan or ContextPlan(0, 0))
        return json_splice.splice(request.raw, request.body, changes) if changes else request.raw

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        headers = content_headers(request)
        if b"anthropic-version" not in request.headers:
            headers.append((b"anthropic-version", VERSION))
        return headers

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        return request.headers.items()

    def reader(self, request: CompletionRequest) -> MessagesRelay:
        return MessagesRelay()

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        message = load_reply(body)
        usage = messages_usage(message.get("usage"))
        choices = chat_completion(message, usage, 0)["choices"]
        return Plain(body, usage, choices[0]["finish_reason"] or "", None, choices)

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        """The error for a refused request, the same as for other client dialects."""
        return self._refusals.refusal(status, body, backend)


def _less_thinking(thinking: Any, most: int) -> dict[str, bytes]:
    """The change that lowers the thinking budget below `most`, the output limit in tokens; empty if it is low
    enough. Thinking is disabled if `most` is too small for it."""
    budget = thinking.get("budget_tokens") if type(thinking) is dict else None
    if type(budget) is not int or budget < most:
        return {}
    if most <= _LEAST_BUDGET:
        return {"thinking": b'{"type":"disabled"}'}
    return {"thinking": orjson.dumps({**thinking, "budget_tokens": most - 1})}


def _messages(request: CompletionRequest, plan: ContextPlan) -> bytes:
    """The messages that stay, as their original bytes; changed ones are written again."""
    start, _ = json_splice.find(request.raw, "messages")[-1]
    kept = []
    for index, (begin, end) in enumerate(json_splice.elements(request.raw, start)):
        if index in plan.drop:
            continue
        changed = message = request.body["messages"][index]
        if index in plan.replace:
            changed = shortened(message, plan.replace[index])
        changed = _signed(changed)
        if changed is message:
            kept.append(request.raw[begin:end])
        elif changed["content"]:
            kept.append(orjson.dumps(changed))
    return b"[" + b",".join(kept) + b"]"


def _signed(message: dict[str, Any]) -> dict[str, Any]:
    """`message` without thinking blocks that no Anthropic model signed."""
    content = message["content"]
    if type(content) is not list or not any(block.get("signature") == UNSIGNED for block in content):
        return message
    return {**message, "content": [block for block in content if block.get("signature") != UNSIGNED]}
