"""Translator for a client of OpenAI's embeddings and a Bedrock backend, which is called through `InvokeModel`.

https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html
https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed.html
"""

from __future__ import annotations

from typing import Any

from gateway.dialects.answers.usage import openai_usage
from gateway.dialects.openai_embeddings.foreign import ForeignEmbeddings, one_text
from gateway.dialects.translate.chat_to_messages.translator import ChatToMessages
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BackendRefused, BadRequest


class EmbeddingsToBedrock(ForeignEmbeddings):
    """Implements `Translator` from OpenAI's embeddings to the bodies of Amazon's Titan and of Cohere."""

    backend: DialectName = "bedrock_converse"

    def __init__(self) -> None:
        super().__init__()
        self._refusals = ChatToMessages()

    def fields(self, request: CompletionRequest, texts: list[str], model: str) -> dict[str, Any]:
        wanted = request.body.get("dimensions")
        if "titan-embed" in model:
            return {"inputText": one_text(texts), **({} if wanted is None else {"dimensions": wanted})}
        if "cohere.embed" in model:
            length = {} if wanted is None else {"output_dimension": wanted}
            kinds = {"input_type": "search_document", "embedding_types": ["float"], "truncate": "NONE"}
            return {"texts": texts, **kinds, **length}
        raise BadRequest("Of Bedrock's models, Titan and Cohere Embed alone are called for embeddings.", param="model")

    def read(self, reply: dict[str, Any]) -> tuple[Any, Usage | None]:
        if "embedding" in reply:
            return [reply["embedding"]], openai_usage({"prompt_tokens": reply["inputTextTokenCount"]})
        found = reply["embeddings"]
        return found["float"] if type(found) is dict else found, None

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return self._refusals.refusal(status, body, backend)
