"""Translator for an OpenAI chat client and an Ollama server that is called through `/api/chat`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from gateway.dialects.answers import upstream_error
from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import shown
from gateway.dialects.openai_chat.message import mean_probability
from gateway.dialects.openai_chat.native import kept_messages
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.translate.chat_to_messages.reply import chat_usage
from gateway.dialects.translate.chat_to_ollama.body import chat, forced_function
from gateway.dialects.translate.chat_to_ollama.reply import choice, error_of, usage
from gateway.dialects.translate.chat_to_ollama.stream import OllamaStream
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused


class ChatToOllama:
    """Implements `Translator` from OpenAI chat to Ollama's own API."""

    client: DialectName = "openai_chat"
    backend: DialectName = "ollama_chat"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns Unix seconds, for `created`."""
        self._clock = clock

    def fields(
        self, request: CompletionRequest, model: str, plan: ContextPlan | None, most: int | None
    ) -> dict[str, Any]:
        """The request for the backend. `most`: the gateway's output limit; None: the client's. Raises BadRequest."""
        limit = most if most is not None else request.max_output_tokens
        return chat(request.body, kept_messages(request, plan), model, stream=request.stream, limit=limit)

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        found = self.fields(request, model, plan, max_output_tokens)
        if logprobs and not request.stream:
            found["logprobs"] = True
        return orjson.dumps(found)

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        accepted = b"application/x-ndjson" if request.stream else b"application/json"
        return [(b"content-type", b"application/json"), (b"accept", accepted)]

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        """Returns no headers, because Ollama knows none of OpenAI's headers."""
        return ()

    def reader(self, request: CompletionRequest) -> OllamaStream:
        return OllamaStream(
            wants_usage=request.wants_usage,
            wants_logprobs=bool(request.body.get("logprobs")),
            created=int(self._clock()),
            name=name_of(request),
            model=request.model,
            forced=forced_function(request.body),
        )

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        reply, name = load_reply(body), name_of(request)
        counted = usage(reply)
        found = choice(reply, name, forced_function(request.body))
        confidence = mean_probability([found])
        if not request.body.get("logprobs"):
            found["logprobs"] = None
        shared = {"id": f"chatcmpl-{name}", "object": "chat.completion", "created": int(self._clock())}
        completion = {**shared, "model": request.model, "choices": [found]}
        if visible := shown(counted):
            completion["usage"] = chat_usage(visible)
        return Plain(orjson.dumps(completion), counted, found["finish_reason"], confidence, [found])

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return refusal(status, body, backend)


def refusal(status: int, body: bytes, backend: str) -> BackendRefused:
    """The error for the client after a 4xx of Ollama's own API."""
    try:
        error = error_of(orjson.loads(body))
    except orjson.JSONDecodeError:
        error = None
    return upstream_error.refusal(status, error, backend)


def name_of(request: CompletionRequest) -> str:
    """A text from which the ids of the answer and of its calls are made, because Ollama may send no ids."""
    return request.id.removeprefix("req_")
