"""Translator for an OpenAI chat client and a Bedrock backend that is called through Converse."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import orjson

from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import shown
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.openai_chat.native import content_headers, kept_messages
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.translate.chat_to_converse.body import converse
from gateway.dialects.translate.chat_to_converse.reply import message
from gateway.dialects.translate.chat_to_converse.stream import ConverseStream
from gateway.dialects.translate.chat_to_messages import body as messages_body
from gateway.dialects.translate.chat_to_messages.reply import chat_completion
from gateway.dialects.translate.chat_to_messages.translator import ChatToMessages
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused


class ChatToConverse:
    """Implements `Translator` from OpenAI chat to Bedrock's Converse."""

    client: DialectName = "openai_chat"
    backend: DialectName = "bedrock_converse"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock`: returns Unix seconds. The time is used for `created`, because Converse's answers have no creation
        time."""
        self._clock, self._refusals = clock, ChatToMessages()

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        """The request body for the backend. `logprobs` is ignored, because Converse has no log-probabilities."""
        limit = max_output_tokens or request.max_output_tokens
        kept = kept_messages(request, plan)
        as_messages = messages_body.translate(request.body, kept, model, stream=request.stream, limit=limit)
        if limit is None and as_messages.get("thinking"):
            limit = as_messages["max_tokens"]  # the limit must exceed the thinking budget
        # The arguments of calls are `orjson.Fragment`s, which only orjson can read.
        return orjson.dumps(converse(orjson.loads(orjson.dumps(as_messages)), limit))

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        return content_headers(request)

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        """Returns no headers, because a signed request contains only the headers that the provider class writes."""
        return ()

    def reader(self, request: CompletionRequest) -> ConverseStream:
        return ConverseStream(
            wants_usage=request.wants_usage, created=int(self._clock()), name=name_of(request), model=request.model
        )

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        converted = {**message(load_reply(body)), "id": name_of(request), "model": request.model}
        usage = messages_usage(converted["usage"])
        completion = chat_completion(converted, shown(usage), int(self._clock()))
        choice = completion["choices"][0]
        return Plain(orjson.dumps(completion), usage, choice["finish_reason"] or "", None, completion["choices"])

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return self._refusals.refusal(status, body, backend)


def name_of(request: CompletionRequest) -> str:
    """An id for the answer, because Converse sends no id."""
    return f"chatcmpl-{request.id.removeprefix('req_')}"
