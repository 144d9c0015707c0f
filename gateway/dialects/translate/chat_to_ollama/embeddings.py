"""Translator for a client of OpenAI's embeddings and an Ollama server that is called through `/api/embed`."""

from __future__ import annotations

from typing import Any

from gateway.dialects.openai_embeddings.foreign import ForeignEmbeddings
from gateway.dialects.translate.chat_to_ollama.reply import usage
from gateway.dialects.translate.chat_to_ollama.translator import refusal
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BackendRefused


class EmbeddingsToOllama(ForeignEmbeddings):
    """Implements `Translator` from OpenAI's embeddings to Ollama's own API."""

    backend: DialectName = "ollama_chat"

    def fields(self, request: CompletionRequest, texts: list[str], model: str) -> dict[str, Any]:
        """The request for the backend. Ollama refuses a text that is too long, as OpenAI does."""
        found: dict[str, Any] = {"model": model, "input": request.body["input"], "truncate": False, "options": {}}
        if request.body.get("dimensions") is not None:
            found["dimensions"] = request.body["dimensions"]
        return found

    def read(self, reply: dict[str, Any]) -> tuple[Any, Usage | None]:
        return reply.get("embeddings"), usage(reply)

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return refusal(status, body, backend)
