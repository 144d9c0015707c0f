"""Anthropic client with an Anthropic backend: bytes pass through, and only changed keys are replaced."""

from __future__ import annotations

import json  # noqa: TID251 - to find values that clients wrote with Python's json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.plain import Plain
from gateway.dialects.anthropic_messages.cache_marks import with_marks
from gateway.dialects.anthropic_messages.relay import MessagesRelay
from gateway.dialects.anthropic_messages.thinking import is_unsigned
from gateway.dialects.anthropic_messages.turns import shortened, without_thinking
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.openai_chat.native import content_headers, quoted
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.translate.chat_to_messages.reply import chat_completion
from gateway.dialects.translate.chat_to_messages.translator import VERSION, ChatToMessages
from gateway.domain.body_scan import UNSIGNED
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused

_MARK = UNSIGNED.encode()
_MOST_SEARCHES = 32
"""Maximum number of values that are searched for one by one. If there are more values, one scan of the whole body is
faster."""
_LEAST_BUDGET = 1024
"""Minimum thinking budget in tokens that Anthropic accepts. `max_tokens` must be larger than the budget."""


class MessagesToMessages:
    """Implements `Translator` for an Anthropic client with an Anthropic backend."""

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
        """The request body for the backend. `logprobs` is ignored, because Anthropic has no log-probabilities."""
        changes: dict[str, bytes] = {}
        if model != request.model:
            changes["model"] = quoted(model)
        if max_output_tokens is not None:
            changes["max_tokens"] = b"%d" % max_output_tokens
            changes |= _less_thinking(request.body.get("thinking"), max_output_tokens)
        if (plan is not None and plan.changes_body) or request.contains(_MARK):
            return _conversation(request, plan or ContextPlan(0, 0), changes)
        return json_splice.splice(request.raw, request.body, changes, request.known_scan) if changes else request.raw

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
        """The error for a refused request. It is the same error as for clients of other dialects."""
        return self._refusals.refusal(status, body, backend)


def _less_thinking(thinking: Any, most: int) -> dict[str, bytes]:
    """The change that makes the request's thinking budget smaller than `most` output tokens. Empty if the budget is
    already smaller.

    If `most` is very small, the change switches thinking off.
    """
    budget = thinking.get("budget_tokens") if type(thinking) is dict else None
    if type(budget) is not int or budget < most:
        return {}
    if most <= _LEAST_BUDGET:
        return {"thinking": b'{"type":"disabled"}'}
    return {"thinking": orjson.dumps({**thinking, "budget_tokens": most - 1})}


def _conversation(request: CompletionRequest, plan: ContextPlan, changes: dict[str, bytes]) -> bytes:
    """The request body after trimming, with cache marks. Values that do not change keep their bytes. `changes`:
    top-level key → new JSON, for keys other than the conversation."""
    sent = request.body["messages"]
    kept = [(index, message) for index, message in enumerate(sent) if index not in plan.drop]
    unsigned = request.contains(_MARK)
    if plan.replace or unsigned or plan.no_thinking:
        kept = [(at, shortened(message, plan.replace[at]) if at in plan.replace else message) for at, message in kept]
        kept = [(at, without_thinking(message) if at in plan.no_thinking else message) for at, message in kept]
        kept = [(at, _signed(message) if unsigned else message) for at, message in kept]
        kept = _without_empty(kept, sent)
    messages = [message for _, message in kept]
    fields: dict[str, Any] = {}
    if plan.marks is not None:
        fields = with_marks({**request.body, "messages": messages}, plan.marks)
        messages = fields.pop("messages", messages)
    places = [at for at, _ in kept]
    raw = json_splice.splice(request.raw, request.body, changes) if changes else request.raw
    if len(places) == len(sent):
        pairs = [(message, new) for message, new in zip(sent, messages, strict=True) if message is not new]
        if (found := _located(raw, request.body, fields, pairs)) is not None:
            return json_splice.replace(raw, found)
    changes = {name: orjson.dumps(value) for name, value in fields.items()}
    if len(places) < len(sent) or any(message is not sent[at] for at, message in zip(places, messages, strict=True)):
        changes["messages"] = _written(raw, sent, places, messages)
    return json_splice.splice(raw, request.body, changes) if changes else raw


def _without_empty(kept: list[tuple[int, Any]], sent: list[Any]) -> list[tuple[int, Any]]:
    """Return `kept`, the messages with their indexes in `sent`, without messages that have no content left. If such a
    message stood between two messages of the user, these two become one, because roles must alternate."""
    found: list[tuple[int, Any]] = []
    emptied = False
    for at, message in kept:
        if not message["content"] and message is not sent[at]:
            emptied = True
        elif emptied and found and message["role"] == found[-1][1]["role"]:
            first, before = found[-1]
            found[-1] = first, {**before, "content": [*_blocks(before), *_blocks(message)]}
            emptied = False
        else:
            found.append((at, message))
            emptied = False
    return found


def _blocks(message: dict[str, Any]) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if type(content) is str else content


def _located(
    raw: bytes, body: dict[str, Any], fields: dict[str, Any], pairs: list[tuple[Any, Any]]
) -> list[tuple[tuple[int, int], bytes]] | None:
    """The spans in `raw` of the values that change, each with its new JSON. None if a span is uncertain.

    `fields`: top-level key → new value. `pairs`: (old, new) values inside messages.
    """
    if len(pairs) > _MOST_SEARCHES:
        return None
    for separator, dumps in ((b":", orjson.dumps), (b": ", _as_python_writes)):
        wanted = [(b'"%s"%s' % (name.encode(), separator), dumps(body[name]), value) for name, value in fields.items()]
        wanted += [(b"", dumps(old), new) for old, new in pairs]
        if (found := _searched(raw, wanted)) is not None:
            return found
    return None


def _as_python_writes(value: Any) -> bytes:
    """`value` in the default format of Python's `json`, with spaces and escapes."""
    return json.dumps(value).encode()


def _searched(raw: bytes, wanted: list[tuple[bytes, bytes, Any]]) -> list[tuple[tuple[int, int], bytes]] | None:
    """Find the values that change in `raw`. Returns their spans, each with the new JSON. `wanted`: (bytes before the
    value, bytes of the value, new value).

    None if the bytes of a value do not occur exactly as often as expected.
    """
    times = Counter(key + old for key, old, _ in wanted)
    ends: dict[bytes, int] = {}
    found = []
    for key, old, new in wanted:
        text = key + old
        if text not in ends and raw.count(text) != times[text]:
            return None
        start = raw.index(text, ends.get(text, 0)) + len(key)
        ends[text] = start + len(old)
        found.append(((start, start + len(old)), orjson.dumps(new)))
    return found


def _written(raw: bytes, sent: list[Any], places: list[int], messages: list[Any]) -> bytes:
    """`messages` as JSON. `sent`: the messages in `raw`. `places`: for each message, its index in `sent`. Messages that
    did not change keep their bytes."""
    start, _ = json_splice.find(raw, "messages")[-1]
    spans = list(json_splice.elements(raw, start))
    pieces = [
        raw[slice(*spans[at])] if message is sent[at] else orjson.dumps(message)
        for at, message in zip(places, messages, strict=True)
    ]
    return b"[" + b",".join(pieces) + b"]"


def _signed(message: dict[str, Any]) -> dict[str, Any]:
    """`message` without the thinking blocks that have the gateway's marker in place of a signature by Anthropic."""
    content = message["content"]
    if type(content) is not list or not any(map(is_unsigned, content)):
        return message
    return {**message, "content": [block for block in content if not is_unsigned(block)]}
