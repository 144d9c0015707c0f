"""Client and backend use OpenAI's embeddings: bytes pass through, and only the model's name is replaced."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import counted, openai_usage
from gateway.dialects.openai_chat import plain
from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.openai_embeddings.dialect import vectors
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage

_USAGE = b'"usage"'


class EmbeddingsToEmbeddings(ChatToChat):
    """Implements `Translator` if client and backend use OpenAI's embeddings. Embeddings are not streamed."""

    client: DialectName = "openai_embeddings"
    backend: DialectName = "openai_embeddings"

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        changes = self._changes(request, model, None)
        return json_splice.splice(request.raw, request.body, changes) if changes else request.raw

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        """Read a plain answer. If possible, only `usage` is parsed, because the vectors are not needed."""
        usage = counted(openai_usage(_usage_object(body)), request.estimated_tokens or 0)
        return Plain(body, usage, "stop", None, [vectors(len(request.turns))])


def _usage_object(body: bytes) -> Any:
    """The usage object of an answer. Raises BackendGarbage if `body` contains no embeddings."""
    at = body.rfind(_USAGE)
    if at >= 0 and body.startswith(b"{") and body.find(b'"data"') >= 0 and body.find(b'"error"') < 0:
        try:
            start = body.index(b"{", at)
            return orjson.loads(body[start : json_splice.value_end(body, start)])
        except (ValueError, IndexError):
            pass  # the usage is null, or its key also occurs elsewhere in the body
    reply = plain.load_reply(body)
    if type(reply.get("data")) is not list:
        raise BackendGarbage("The backend answered with JSON that holds no embeddings.")
    return reply.get("usage")
