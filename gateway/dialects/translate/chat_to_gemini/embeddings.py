"""Translator for a client of OpenAI's embeddings and a Gemini backend, which is called through `batchEmbedContents`.

https://ai.google.dev/api/embeddings. Backends of the kind `vertex` convert the request once more, because Vertex AI has
other methods.
"""

from __future__ import annotations

from typing import Any

from gateway.dialects.answers.usage import openai_usage
from gateway.dialects.openai_embeddings.foreign import ForeignEmbeddings
from gateway.dialects.translate.chat_to_gemini.reply import usage
from gateway.dialects.translate.chat_to_gemini.translator import ChatToGemini
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BackendRefused

EXTRAS = "gemini"
"""A key in `CompletionRequest.body`. Its value is a list with Google's own fields of each text (`taskType`, `title`).
They change the vectors, so they are part of the cache's key."""


class EmbeddingsToGemini(ForeignEmbeddings):
    """Implements `Translator` from OpenAI's embeddings to Gemini."""

    backend: DialectName = "gemini_generate"

    def __init__(self) -> None:
        super().__init__()
        self._refusals = ChatToGemini()

    def fields(self, request: CompletionRequest, texts: list[str], model: str) -> dict[str, Any]:
        own = request.body.get(EXTRAS) or [{}] * len(texts)
        wanted = request.body.get("dimensions")
        length = {} if wanted is None else {"outputDimensionality": wanted}
        name = f"models/{model.removeprefix('models/')}"
        return {
            "requests": [
                {"model": name, "content": {"parts": [{"text": text}]}, **length, **more}
                for text, more in zip(texts, own, strict=True)
            ]
        }

    def read(self, reply: dict[str, Any]) -> tuple[Any, Usage | None]:
        """The vectors and the usage in an answer of `batchEmbedContents`, or of Vertex AI's `embedContent` or
        `predict`."""
        if (predictions := reply.get("predictions")) is not None:
            found = [each["embeddings"] for each in predictions]
            tokens = sum(int(each["statistics"]["token_count"]) for each in found)
            return [each["values"] for each in found], openai_usage({"prompt_tokens": tokens})
        embeddings = reply["embeddings"] if "embeddings" in reply else [reply["embedding"]]
        return [each["values"] for each in embeddings], usage(reply.get("usageMetadata"))

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return self._refusals.refusal(status, body, backend)
