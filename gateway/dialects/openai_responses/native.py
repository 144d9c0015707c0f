"""Client and backend use OpenAI Responses: bytes pass through, and only changed keys are replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.plain import Plain
from gateway.dialects.openai_chat.message import mean_probability
from gateway.dialects.openai_chat.native import ChatToChat, quoted
from gateway.dialects.openai_responses.echo import EchoRelay, differs, with_echoed
from gateway.dialects.openai_responses.items import shortened
from gateway.dialects.openai_responses.relay import ResponsesRelay
from gateway.dialects.openai_responses.request import INSTRUCTIONS, kept, wants_logprobs
from gateway.dialects.openai_responses.thinking import unpack
from gateway.dialects.openai_responses.usage import reported
from gateway.dialects.requests.spans import any_item, item_spans, known_list
from gateway.dialects.translate.chat_to_responses.body import LOGPROBS
from gateway.dialects.translate.chat_to_responses.reply import choices, finish_of, load_response
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused, BadRequest

_SEALED = "reasoning.encrypted_content"


_CHAT = ChatToChat()
"""Writes headers and reads errors. Both are the same as in chat at the same vendor."""


class ResponsesToResponses:
    """Implements `Translator` if client and backend use OpenAI Responses. The backend stores nothing, because the
    gateway sends the whole conversation each time."""

    client: DialectName = "openai_responses"
    backend: DialectName = "openai_responses"

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        body, changes = request.body, dict[str, bytes]()
        # the gateway has already replaced it with the stored items
        if body.get("previous_response_id") is not None:
            raise BadRequest(
                "A stored response cannot be named here: send the conversation as input.", param="previous_response_id"
            )
        if model != request.model:
            changes["model"] = quoted(model)
        if max_output_tokens is not None:
            changes["max_output_tokens"] = b"%d" % max_output_tokens
        if body.get("store") is not False:
            changes["store"] = b"false"
        if more := _more_included(request, logprobs):
            changes["include"] = orjson.dumps([*(body.get("include") or ()), *more])
        changes |= _context(request, plan)
        if not changes:
            return request.raw
        return json_splice.splice(request.raw, body, changes, request.known_scan, known_list(request))

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        return _CHAT.headers(request)

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        return _CHAT.forwarded(request)

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return _CHAT.refusal(status, body, backend)

    def reader(self, request: CompletionRequest) -> ResponsesRelay:
        wanted = wants_logprobs(request.body)
        if differs(request.echoed):
            return EchoRelay(request.echoed, wants_logprobs=wanted)
        return ResponsesRelay(wants_logprobs=wanted)

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        response = load_response(body)
        found = choices(response)
        confidence = mean_probability(found)
        if confidence is not None and not wants_logprobs(request.body):
            body = _without_logprobs(body)
        if differs(request.echoed):
            body = with_echoed(body, request.echoed)
        return Plain(body, reported(response), finish_of(response), confidence, found)


def _more_included(request: CompletionRequest, logprobs: bool) -> list[str]:
    """The values to add to the request field `include`: encrypted reasoning for the client, and log-probabilities
    for the gateway.
    """
    body = request.body
    more = [LOGPROBS] if logprobs and not request.stream and not wants_logprobs(body) else []
    if body.get("store") is not False and body.get("reasoning") and _SEALED not in (body.get("include") or ()):
        more.append(_SEALED)
    return more


def _context(request: CompletionRequest, plan: ContextPlan | None) -> dict[str, bytes]:
    """The changes to `instructions` and `input`. Turns are removed as `plan` requires. Reasoning items that the backend
    cannot use are removed too."""
    body = request.body
    drop = plan.drop if plan else frozenset[int]()
    replace = plan.replace if plan else dict[int, str]()
    changes: dict[str, bytes] = {}
    if INSTRUCTIONS in drop or INSTRUCTIONS in replace:
        changes["instructions"] = orjson.dumps(None if INSTRUCTIONS in drop else replace[INSTRUCTIONS])
    value = body.get("input")
    if type(value) is str and 0 in replace:
        changes["input"] = orjson.dumps(replace[0])
    elif type(value) is list:
        stay: Sequence[int] = range(len(value))
        if drop or any_item(request, _forgotten):
            stay = [place for place in kept(value, drop) if not _forgotten(value[place])]
        if replace.keys() - {INSTRUCTIONS} or len(stay) < len(value):
            changes["input"] = _items(request, stay, replace)
    return changes


def _forgotten(item: dict[str, Any]) -> bool:
    """Whether `item` is reasoning that the backend cannot use. Such reasoning is not stored anywhere, or another vendor
    has encrypted it."""
    if item.get("type") != "reasoning":
        return False
    sealed = item.get("encrypted_content")
    return bool(unpack(sealed)) or not (sealed or item.get("content"))


def _items(request: CompletionRequest, stay: Sequence[int], replace: dict[int, str]) -> bytes:
    """The input items that remain, as JSON. `stay`: their indexes. `replace`: index → shortened text. Other items keep
    their bytes."""
    spans, value = item_spans(request), request.body["input"]
    written = [
        orjson.dumps(shortened(value[place], replace[place])) if place in replace else request.raw[slice(*spans[place])]
        for place in stay
    ]
    return b"[" + b",".join(written) + b"]"


def _without_logprobs(body: bytes) -> bytes:
    """`body` with the `logprobs` of every part set to an empty list, as in an answer without log-probabilities."""
    spans = [
        span
        for output, _ in json_splice.find(body, "output")
        for item, _ in json_splice.elements(body, output)
        for field, (content, _) in json_splice.members(body, item)
        if field == "content" and body[content : content + 1] == b"["
        for part, _ in json_splice.elements(body, content)
        for key, span in json_splice.members(body, part)
        if key == "logprobs"
    ]
    return json_splice.replace(body, [(span, b"[]") for span in spans])
