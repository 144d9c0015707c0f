"""The common part of translators from OpenAI's embeddings to the embeddings of other vendors."""

from __future__ import annotations

import struct
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import orjson

from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import counted
from gateway.dialects.openai_chat.plain import load_reply
from gateway.dialects.openai_embeddings.dialect import vectors
from gateway.dialects.openai_embeddings.native import EmbeddingsToEmbeddings
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendGarbage, BadRequest


class ForeignEmbeddings(EmbeddingsToEmbeddings):
    """Base class of translators to backends that accept only texts and have another form of answers."""

    @abstractmethod
    def fields(self, request: CompletionRequest, texts: list[str], model: str) -> dict[str, Any]:
        """The request for the backend. Raises BadRequest with a field that the backend cannot express."""

    @abstractmethod
    def read(self, reply: dict[str, Any]) -> tuple[Any, Usage | None]:
        """The list of vectors in an answer, and its usage. Raises LookupError, TypeError, AttributeError."""

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        """The request body for the backend. Raises BadRequest for inputs that are tokens."""
        given = request.body["input"]
        texts = [given] if type(given) is str else given
        if any(type(each) is not str for each in texts):
            raise BadRequest("input must be texts for this model, not tokens.", param="input")
        return orjson.dumps(self.fields(request, texts, model))

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        """Returns no headers, because other vendors know none of OpenAI's headers."""
        return ()

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        try:
            found, reported = self.read(load_reply(body))
        except (LookupError, TypeError, AttributeError):
            found, reported = None, None
        if type(found) is not list or len(found) != len(request.turns):
            raise BackendGarbage("The backend answered with JSON that does not have one vector for each input.")
        used = counted(reported, request.estimated_tokens or 0)
        in_base64 = request.body.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": index, "embedding": _base64(vector) if in_base64 else vector}
            for index, vector in enumerate(found)
        ]
        tokens = {"prompt_tokens": used.all_input, "total_tokens": used.all_input}
        written = {"object": "list", "data": data, "model": request.model, "usage": tokens}
        return Plain(orjson.dumps(written), used, "stop", None, [vectors(len(found))])


def one_text(texts: list[str]) -> str:
    """The only text. Raises BadRequest if there are several."""
    if len(texts) != 1:
        raise BadRequest("This model embeds one text in a request: send each input alone.", param="input")
    return texts[0]


def _base64(vector: list[float]) -> str:
    """The vector as little-endian 32-bit floats in base64. Raises BackendGarbage if it contains something else."""
    try:
        return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    except (struct.error, TypeError, OverflowError) as error:
        raise BackendGarbage("The backend answered with a vector that is no list of numbers.") from error
