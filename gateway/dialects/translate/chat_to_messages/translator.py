"""Translator for an OpenAI chat client and a backend with Anthropic's messages API."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import orjson

from gateway.dialects.answers import upstream_error
from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.upstream_error import UpstreamError
from gateway.dialects.answers.usage import shown
from gateway.dialects.anthropic_messages.cache_marks import with_marks
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.openai_chat.native import content_headers, kept_messages
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.translate.chat_to_messages import body as messages_body
from gateway.dialects.translate.chat_to_messages.reply import chat_completion
from gateway.dialects.translate.chat_to_messages.stream import MessagesStream
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused, BodyTooLarge, ContextTooLong

VERSION = b"2023-06-01"
_KINDS = {"request_too_large": "invalid_request_error", "not_found_error": "invalid_request_error"}
_CODES = {"request_too_large": BodyTooLarge.code}
_TOO_LONG = re.compile(r"prompt is too long|exceeds? (the )?context limit")
_NAMED = re.compile(r"(model|max_tokens|temperature|top_p|top_k|tools|tool_choice|stop_sequences|thinking)\b[.\w]*:")
_PARAMS = {"stop_sequences": "stop"}
_FORWARDED = (b"traceparent", b"tracestate", b"x-client-request-id")


class ChatToMessages:
    """Implements `Translator` from OpenAI chat to Anthropic messages."""

    client: DialectName = "openai_chat"
    backend: DialectName = "anthropic_messages"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns Unix seconds. The time is used for `created`, because Anthropic's answers have no creation
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
        """The request body for the backend. `logprobs` is ignored, because Anthropic has no log-probabilities."""
        messages = kept_messages(request, plan)
        limit = max_output_tokens or request.max_output_tokens
        translated = messages_body.translate(request.body, messages, model, stream=request.stream, limit=limit)
        if plan is not None and plan.marks is not None:
            translated |= with_marks(translated, plan.marks)
        return orjson.dumps(translated)

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        return [*content_headers(request), (b"anthropic-version", VERSION)]

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        return [(name, request.headers[name]) for name in _FORWARDED if name in request.headers]

    def reader(self, request: CompletionRequest) -> MessagesStream:
        return MessagesStream(wants_usage=request.wants_usage, created=int(self._clock()))

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        message = load_reply(body)
        usage = messages_usage(message.get("usage"))
        completion = chat_completion(message, shown(usage), int(self._clock()), body)
        choice = completion["choices"][0]
        return Plain(
            body=orjson.dumps(completion),
            usage=usage,
            finish=choice["finish_reason"] or "",
            confidence=None,
            choices=completion["choices"],
        )

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        error = upstream_error.error_in(body)
        return upstream_error.refusal(status, error and _as_openai_error(error), backend)


def _as_openai_error(error: UpstreamError) -> UpstreamError:
    """Add OpenAI's error code and parameter to `error`. Anthropic's errors have no code, and name a parameter only at
    the beginning of the message."""
    named = _NAMED.match(error.message)
    return replace(
        error,
        kind=_KINDS.get(error.kind, error.kind),
        code=ContextTooLong.code if _TOO_LONG.search(error.message) else error.code or _CODES.get(error.kind),
        param=error.param or (_PARAMS.get(named[1], named[1]) if named else None),
    )
