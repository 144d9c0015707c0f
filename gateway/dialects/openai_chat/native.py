"""OpenAI chat client with an OpenAI chat backend: bytes pass through, and only changed keys are replaced."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers import upstream_error
from gateway.dialects.openai_chat import plain as chat_plain
from gateway.dialects.openai_chat.foreign_fields import may_have_foreign_fields, plain_chat
from gateway.dialects.openai_chat.stream import ChatStream
from gateway.dialects.openai_chat.vendor_rules import adapted, refuse_fields
from gateway.dialects.requests.spans import item_spans, known_list
from gateway.domain.chat_rules import NO_RULES, ChatRules
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused

_LIMITS = ("max_completion_tokens", "max_tokens")
quoted = lru_cache(maxsize=256)(orjson.dumps)
"""The name of a backend's model as JSON. The results are cached, because there are few names."""


class ChatToChat:
    """Implements `Translator` for an OpenAI chat client with an OpenAI chat backend."""

    client: DialectName = "openai_chat"
    backend: DialectName = "openai_chat"

    def __init__(
        self,
        limits: tuple[str, ...] = ("max_completion_tokens", "max_tokens"),
        *,
        strict: bool = False,
        rules: ChatRules = NO_RULES,
    ) -> None:
        """`limits`: names of fields for the output limit. `rules`: differences between the backend's API and OpenAI's.

        `strict`: whether the backend rejects fields that it does not know: Anthropic's fields of messages and tools,
        and other servers' fields for the output limit.
        """
        self._limits, self._strict, self._rules = limits, strict, rules
        self._edits_messages = strict or rules.changes_messages
        others = {*_LIMITS} - {*limits} if strict and limits == ("max_tokens",) else set()
        self._leaves_out = rules.leaves_out | rules.renames.keys() | rules.refuses | others

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        if self._rules.refuses:
            refuse_fields(request.body, self._rules)
        changes = self._changes(request, model, max_output_tokens)
        if logprobs and not request.stream and "logprobs" not in self._leaves_out and not request.body.get("logprobs"):
            changes["logprobs"] = b"true"
        if self._edits_messages or plan is not None:
            changes |= self._messages(request, plan)
        body = request.raw
        if changes:
            body = json_splice.splice(body, request.body, changes, request.known_scan, known_list(request))
        return body if self._leaves_out.isdisjoint(request.body) else json_splice.without(body, self._leaves_out)

    def _messages(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, bytes]:
        """The new `messages` and `tools` as JSON, if they change."""
        changes: dict[str, bytes] = {}
        messages: list[Any] | None = None
        if self._strict and may_have_foreign_fields(request):
            kept = [message for _, message in kept_messages(request, plan)]
            given = {"messages": kept, "tools": request.body.get("tools")}
            plain = plain_chat(given, signatures=self._rules.keeps_signatures)
            changes |= {name: orjson.dumps(value) for name, value in plain.items() if value is not None}
            messages = plain["messages"]
        elif plan is not None and plan.touched:
            changes["messages"] = _messages(request, plan)
        if self._rules.changes_messages:
            if messages is None:
                messages = [message for _, message in kept_messages(request, plan)]
            fitting = adapted(messages, self._rules)
            if any(new is not old for new, old in zip(fitting, messages, strict=True)):
                changes["messages"] = orjson.dumps(fitting)
        return changes

    def _changes(self, request: CompletionRequest, model: str, max_output_tokens: int | None) -> dict[str, bytes]:
        """Top-level key → the key's new value as JSON. Contains only the keys that change."""
        changes: dict[str, bytes] = {}
        if model != request.model:
            changes["model"] = quoted(model)
        if request.stream and not request.wants_usage and "stream_options" not in self._leaves_out:
            options = request.body.get("stream_options") or {}
            changes["stream_options"] = orjson.dumps({**options, "include_usage": True})
        if max_output_tokens is not None:
            value = tuple(key for key in _LIMITS if request.body.get(key) is not None)
            # OpenAI accepts either limit field, but not both in one request
            known = bool(value) and self._limits == ("max_completion_tokens",)
            fields = value if known else value + self._limits
            changes |= dict.fromkeys(fields, b"%d" % max_output_tokens)
        elif _LIMITS[0] in self._leaves_out and type(most := request.body.get(_LIMITS[0])) is int:
            changes["max_tokens"] = b"%d" % most
        for ours, theirs in self._rules.renames.items():
            if (renamed := request.body.get(ours)) is not None:
                changes[theirs] = orjson.dumps(renamed)
        return changes

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        return content_headers(request)

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        return request.headers.items()

    def reader(self, request: CompletionRequest) -> ChatStream:
        return ChatStream(wants_usage=request.wants_usage, wants_logprobs=bool(request.body.get("logprobs")))

    plain = staticmethod(chat_plain.read)

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return upstream_error.refusal(status, upstream_error.error_in(body), backend)


def content_headers(request: CompletionRequest) -> list[tuple[bytes, bytes]]:
    """The headers for the type of the body and for the type of the answer."""
    return [
        (b"content-type", b"application/json"),
        (b"accept", b"text/event-stream" if request.stream else b"application/json"),
    ]


def _messages(request: CompletionRequest, plan: ContextPlan) -> bytes:
    """The messages that remain after trimming, as JSON. Messages that did not change keep their bytes."""
    messages = request.body["messages"]
    changed = plan.replace.keys() | plan.no_thinking
    kept = [
        orjson.dumps(_changed(messages[index], index, plan)) if index in changed else request.raw[a:b]
        for index, (a, b) in enumerate(item_spans(request))
        if index not in plan.drop
    ]
    return b"[" + b",".join(kept) + b"]"


def kept_messages(request: CompletionRequest, plan: ContextPlan | None) -> list[tuple[int, Any]]:
    """The messages of a chat request that remain after trimming: (index in the request, message). Messages are
    shortened where `plan` requires it."""
    messages = enumerate(request.body["messages"])
    if plan is None or not plan.touched:
        return list(messages)
    return [(index, _changed(message, index, plan)) for index, message in messages if index not in plan.drop]


def _changed(message: dict[str, Any], index: int, plan: ContextPlan) -> dict[str, Any]:
    """`message` as `plan` sends it: with a shorter text, or without its thinking blocks."""
    if index in plan.replace:
        message = shortened(message, plan.replace[index])
    if index in plan.no_thinking:
        message = {name: value for name, value in message.items() if name != "thinking_blocks"}
    return message


def shortened(message: dict[str, Any], text: str) -> dict[str, Any]:
    """`message` with its text replaced by `text`. Parts that are not text stay in their places."""
    content = message.get("content")
    if type(content) is not list:
        return {**message, "content": text}
    parts: list[Any] = []
    written = False
    for part in content:
        if type(part.get("text")) is not str:
            parts.append(part)
        elif not written:
            parts.append({**part, "text": text})
            written = True
    return {**message, "content": parts if written else [*parts, {"type": "text", "text": text}]}
