"""Legacy completions client and backend: bytes are passed on, and only changed keys are replaced."""

from __future__ import annotations

from typing import Any

from gateway.dialects import json_splice
from gateway.dialects.answers.plain import Plain
from gateway.dialects.openai_chat import plain
from gateway.dialects.openai_chat.message import overall_finish
from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.openai_chat.usage import reported
from gateway.dialects.openai_completions.shape import as_chat_choice, probability
from gateway.dialects.openai_completions.stream import CompletionStream
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage


class CompletionsToCompletions(ChatToChat):
    """Implements `Translator` if client and backend use legacy completions. Prompts are never trimmed: `plan` is
    ignored."""

    client: DialectName = "openai_completions"
    backend: DialectName = "openai_completions"

    def __init__(self) -> None:
        super().__init__(("max_tokens",))

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        changes = self._changes(request, model, max_output_tokens)
        if logprobs and not request.stream and request.body.get("logprobs") is None:
            changes["logprobs"] = b"1"  # some servers return no log-probabilities if the number is 0
        return json_splice.splice(request.raw, request.body, changes) if changes else request.raw

    def reader(self, request: CompletionRequest) -> CompletionStream:
        asked = request.body.get("logprobs") is not None
        return CompletionStream(wants_usage=request.wants_usage, wants_logprobs=asked)

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        reply = plain.load_reply(body)
        choices = _choices(reply)
        confidence = probability(choices)
        if request.body.get("logprobs") is None and any(choice.get("logprobs") for choice in choices):
            body = plain.without_logprobs(body)
        finish = overall_finish(choice.get("finish_reason") for choice in choices)
        chat_choices = [as_chat_choice(choice) for choice in choices]
        return Plain(body, reported(reply, body), finish, confidence, chat_choices)


def _choices(reply: dict[str, Any]) -> list[dict[str, Any]]:
    choices = reply.get("choices")
    if type(choices) is list and choices and all(type(_text(choice)) is str for choice in choices):
        return choices
    raise BackendGarbage("The backend answered with JSON that is not a completion.")


def _text(choice: Any) -> Any:
    return choice.get("text") if type(choice) is dict else None
