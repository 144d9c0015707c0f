"""Kind `gemini`: the Gemini API of Google AI Studio."""

from __future__ import annotations

import re
from urllib.parse import quote

from gateway.backends.http.canned import Canned
from gateway.backends.providers.base import Call, Upstream, error_body
from gateway.backends.providers.over_http import OverHttp
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest, DialectName

_KEY_TROUBLE = (b"API_KEY_INVALID", b"API_KEY_EXPIRED", b"API key not valid", b"API key expired")
"""Texts in an answer with status 400 that mean a problem with the gateway's key. Other vendors answer with status 401
in this case."""


_DELAY = re.compile(rb'"retryDelay"\s*:\s*"(\d{1,6}(?:\.\d{1,9})?)s"')


def operation(request: CompletionRequest) -> str:
    """The last part of the path of a call: the method and, for a stream, the stream's format."""
    if request.dialect == "openai_embeddings":
        return "batchEmbedContents"
    return "streamGenerateContent?alt=sse" if request.stream else "generateContent"


async def with_delay(upstream: Upstream) -> Upstream:
    """Return `upstream`. If it is Google's error 429, add a header `retry-after` with the value of `retryDelay` in the
    body."""
    if upstream.status != 429 or upstream.header(b"retry-after"):
        return upstream
    try:
        body = await error_body(upstream)
    finally:
        await upstream.aclose()
    headers = dict(upstream.headers)
    if found := _DELAY.search(body):
        headers[b"retry-after"] = found[1]
    return Canned(upstream.status, body, headers)


class Gemini(OverHttp):
    """Addresses calls by model, and authenticates with `x-goog-api-key`."""

    dialect: DialectName = "gemini_generate"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._model = quote(backend.sent_model.removeprefix("models/"), safe="")

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        return f"/models/{self._model}:{operation(request)}"

    def sign(self, headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
        return [*headers, (b"x-goog-api-key", self.secret.encode())] if self.secret else headers

    async def send(self, call: Call) -> Upstream:
        upstream = await with_delay(await super().send(call))
        if upstream.status != 400:
            return upstream
        try:
            body = await error_body(upstream)
        finally:
            await upstream.aclose()
        status = 401 if any(words in body for words in _KEY_TROUBLE) else 400
        return Canned(status, body, dict(upstream.headers))
