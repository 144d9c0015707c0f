"""Translates legacy completions to chat and back: the prompt becomes a user message, and the message's text becomes
`text`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects.openai_chat.reader import DONE
from gateway.dialects.openai_completions.shape import as_text_choice, words
from gateway.dialects.translate.chat_to_messages.reply import chat_usage
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BadRequest

_OWN = frozenset({"prompt", "suffix", "echo", "best_of", "logprobs", "stream_options"})
"""Names of fields that chat does not have, or that have another meaning in chat."""
_CHUNK_TOP = ("id", "created", "model", "system_fingerprint", "service_tier")


class CompletionsAsChat:
    """Implements `Translation` for legacy completions."""

    client: DialectName = "openai_completions"
    fields: Mapping[str, str] = {
        "messages": "prompt",
        "max_completion_tokens": "max_tokens",
    }

    def chat(self, request: CompletionRequest, plan: ContextPlan | None) -> dict[str, Any]:
        body = request.body
        _refuse_what_chat_lacks(body)
        prompt = body["prompt"] if type(body["prompt"]) is str else body["prompt"][0]
        kept = {name: value for name, value in body.items() if name not in _OWN}
        return {**kept, "messages": [{"role": "user", "content": prompt}]}

    def plain(self, request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> bytes:
        choices = [as_text_choice(choice) for choice in completion["choices"]]
        return orjson.dumps({**completion, "object": "text_completion", "choices": choices})

    def writer(self, request: CompletionRequest) -> TextWriter:
        return TextWriter(wants_usage=request.wants_usage)


def _refuse_what_chat_lacks(body: Mapping[str, Any]) -> None:
    """Raises BadRequest with the name of the first field in `body` that chat does not support."""
    prompt = body.get("prompt")
    if type(prompt) is list and (len(prompt) != 1 or type(prompt[0]) is not str):
        raise _refusal("prompt", "takes one string here")
    for name in ("suffix", "echo", "logprobs"):
        if body.get(name) not in (None, "", False) or type(body.get(name)) is int:
            raise _refusal(name, "cannot be given here")
    if (body.get("best_of") or 1) > (body.get("n") or 1):
        raise _refusal("best_of", "cannot be above n here")


def _refusal(name: str, what: str) -> BadRequest:
    return BadRequest(
        f"{name} {what}: the backend that serves this model answers chat completions, which have no such thing. "
        "Leave it out, or ask for a model whose backend serves /v1/completions.",
        param=name,
    )


class TextWriter:
    """Converts chat chunks to chunks with text. Chunks without text are omitted, except for the first chunk."""

    def __init__(self, *, wants_usage: bool) -> None:
        self._wants_usage = wants_usage
        self._top: dict[str, Any] = {}

    def write(self, chunk: dict[str, Any]) -> bytes:
        first = not self._top
        if first:
            self._top = {name: chunk[name] for name in _CHUNK_TOP if name in chunk} | {"object": "text_completion"}
        choices = [
            {
                "text": words(choice.get("delta") or {}),
                "index": choice.get("index", 0),
                "logprobs": choice.get("logprobs"),
                "finish_reason": choice.get("finish_reason"),
            }
            for choice in chunk["choices"]
        ]
        if not first and not any(choice["text"] or choice["finish_reason"] for choice in choices):
            return b""
        return self._event(choices, None)

    def more(self, texts: list[str]) -> bytes | None:
        return None

    def end(self, finish: str, usage: Usage | None) -> bytes:
        return (self.usage_chunk(chat_usage(usage)) if usage else b"") + DONE

    def whole(self) -> bytes | None:
        return None

    def usage_chunk(self, usage: dict[str, Any]) -> bytes:
        """The chunk with the usage; empty if the client did not ask for usage."""
        return self._event([], usage) if self._wants_usage else b""

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
        extra = {"usage": usage} if self._wants_usage else {}
        return b"data: " + orjson.dumps({**self._top, "choices": choices, **extra}) + b"\n\n"
