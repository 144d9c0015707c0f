"""Translator for a client of OpenAI's embeddings and an Ollama server that is called through `/api/embed`."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import orjson

from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import counted
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.openai_embeddings.dialect import vectors
from gateway.dialects.openai_embeddings.native import EmbeddingsToEmbeddings
from gateway.dialects.translate.chat_to_ollama.reply import usage
from gateway.dialects.translate.chat_to_ollama.translator import refusal
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage, BackendRefused, BadRequest


class EmbeddingsToOllama(EmbeddingsToEmbeddings):
    """Implements `Translator` from OpenAI's embeddings to Ollama's own API."""

    backend: DialectName = "ollama_chat"

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        """The request body for the backend. Ollama refuses a text that is too long, as OpenAI does. Raises BadRequest
        for inputs that are tokens."""
        given = request.body["input"]
        if type(given) is not str and any(type(each) is not str for each in given):
            raise BadRequest("input must be texts for this model, not tokens.", param="input")
        found: dict[str, Any] = {"model": model, "input": given, "truncate": False, "options": {}}
        if request.body.get("dimensions") is not None:
            found["dimensions"] = request.body["dimensions"]
        return orjson.dumps(found)

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        """Returns no headers, because Ollama knows none of OpenAI's headers."""
        return ()

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        reply = load_reply(body)
        found = reply.get("embeddings")
        if type(found) is not list or len(found) != len(request.turns):
            raise BackendGarbage("The backend answered with JSON that does not have one vector for each input.")
        used = counted(usage(reply), request.estimated_tokens or 0)
        in_base64 = request.body.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": index, "embedding": _base64(vector) if in_base64 else vector}
            for index, vector in enumerate(found)
        ]
        tokens = {"prompt_tokens": used.all_input, "total_tokens": used.all_input}
        written = {"object": "list", "data": data, "model": request.model, "usage": tokens}
        return Plain(orjson.dumps(written), used, "stop", None, [vectors(len(found))])

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return refusal(status, body, backend)


def _base64(vector: list[float]) -> str:
    """The vector as little-endian 32-bit floats in base64. Raises BackendGarbage if it contains something else."""
    try:
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    except (struct.error, TypeError, OverflowError) as error:
        raise BackendGarbage("The backend answered with a vector that is no list of numbers.") from error
