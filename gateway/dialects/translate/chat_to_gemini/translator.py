"""Translator for an OpenAI chat client and a Gemini backend. The backend is the Gemini API or Vertex AI."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import orjson

from gateway.dialects.answers import upstream_error
from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import shown
from gateway.dialects.openai_chat.native import content_headers, kept_messages
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.translate.chat_to_gemini.body import generate
from gateway.dialects.translate.chat_to_gemini.reply import completion, usage
from gateway.dialects.translate.chat_to_gemini.stream import GeminiStream
from gateway.dialects.translate.chat_to_messages.reply import chat_usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused, ContextTooLong

_TOO_LONG = re.compile(r"input token count .*exceeds the maximum")


class ChatToGemini:
    """Implements `Translator` from OpenAI chat to Gemini's `generateContent`."""

    client: DialectName = "openai_chat"
    backend: DialectName = "gemini_generate"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns Unix seconds. The time is used for `created`, because Gemini's answers have no creation
        time."""
        self._clock = clock

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        """The request body for the backend. `logprobs` is ignored."""
        limit = max_output_tokens or request.max_output_tokens
        return orjson.dumps(generate(request.body, kept_messages(request, plan), model, limit))

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        return content_headers(request)

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        """Returns no headers, because Google supports none of OpenAI's headers."""
        return ()

    def reader(self, request: CompletionRequest) -> GeminiStream:
        created = int(self._clock())
        return GeminiStream(
            wants_usage=request.wants_usage, created=created, name=name_of(request), model=request.model
        )

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        reply, name = load_reply(body), name_of(request)
        counted = usage(reply.get("usageMetadata"))
        shared = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion",
            "created": int(self._clock()),
            "model": request.model,
        }
        made = completion(reply, shared, f"call_{name}")
        if visible := shown(counted):
            made["usage"] = chat_usage(visible)
        choice = made["choices"][0]
        return Plain(orjson.dumps(made), counted, choice["finish_reason"] or "", None, made["choices"])

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        error = upstream_error.error_in(body)
        if error is not None:
            code = ContextTooLong.code if _TOO_LONG.search(error.message) else None
            error = replace(error, code=code, kind=error.kind or "invalid_request_error")
        return upstream_error.refusal(status, error, backend)


def name_of(request: CompletionRequest) -> str:
    """A text from which the ids of the answer and of its calls are made. Needed because some Gemini models send no
    id."""
    return request.id.removeprefix("req_")
