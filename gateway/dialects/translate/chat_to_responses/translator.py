"""Translator for an OpenAI chat client and a backend with OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson

from gateway.dialects.answers import upstream_error
from gateway.dialects.answers.plain import Plain
from gateway.dialects.openai_chat.message import mean_probability
from gateway.dialects.openai_chat.native import ChatToChat, kept_messages
from gateway.dialects.openai_responses.usage import reported
from gateway.dialects.translate.chat_to_responses import body as chat_as_responses
from gateway.dialects.translate.chat_to_responses.reply import chat_completion, load_response
from gateway.dialects.translate.chat_to_responses.stream import ResponsesStream
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused

_CHAT = ChatToChat()
"""Writes the headers, which are the same as in chat at the same vendor."""
_FIELDS = {
    "input": "messages",
    "max_output_tokens": "max_completion_tokens",
    "reasoning.effort": "reasoning_effort",
    "text.format": "response_format",
}
"""Name of a field in the errors of the backend → the client's name for this field."""


class ChatToResponses:
    """Implements `Translator` from OpenAI chat to OpenAI Responses."""

    client: DialectName = "openai_chat"
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
        body = request.body
        limit = max_output_tokens if max_output_tokens is not None else request.max_output_tokens
        if logprobs and not request.stream:
            body = {**body, "logprobs": True}
        translated = chat_as_responses.translate(
            body, kept_messages(request, plan), model, stream=request.stream, max_tokens=limit
        )
        return orjson.dumps(translated)

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        return _CHAT.headers(request)

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        return _CHAT.forwarded(request)

    def reader(self, request: CompletionRequest) -> ResponsesStream:
        return ResponsesStream(wants_usage=request.wants_usage, wants_logprobs=bool(request.body.get("logprobs")))

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        response = load_response(body)
        completion = chat_completion(response)
        choices: list[dict[str, Any]] = completion["choices"]
        confidence = mean_probability(choices)
        if not request.body.get("logprobs"):
            choices[0]["logprobs"] = None
        return Plain(orjson.dumps(completion), reported(response), choices[0]["finish_reason"], confidence, choices)

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        error = upstream_error.error_in(body)
        if error and error.param in _FIELDS:
            error = replace(error, param=_FIELDS[error.param])
        return upstream_error.refusal(status, error, backend)
