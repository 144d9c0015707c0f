"""Converse on both sides: the request is translated through chat, and the client's fields for the model are added."""

from __future__ import annotations

import orjson

from gateway.dialects.bedrock_converse.request import EXTRAS
from gateway.dialects.translate.chat_to_converse.translator import ChatToConverse
from gateway.dialects.via_chat import Translation, ViaChat
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan

_FIELD = "additionalModelRequestFields"


class ConverseToConverse(ViaChat):
    """Implements `Translator` from Converse to itself."""

    def __init__(self, translation: Translation) -> None:
        super().__init__(translation, ChatToConverse())

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        body = super().body(request, model, plan, logprobs=logprobs, max_output_tokens=max_output_tokens)
        if not (extras := request.body.get(EXTRAS)):
            return body
        found = orjson.loads(body)
        return orjson.dumps({**found, _FIELD: {**extras, **found.get(_FIELD, {})}})
