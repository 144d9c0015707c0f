"""Kind `vertex`: Gemini and Claude on Google's Vertex AI."""

from __future__ import annotations

from urllib.parse import quote

from gateway.backends.http.canned import Canned
from gateway.backends.providers.base import Call, Upstream
from gateway.backends.providers.by_token import ByToken
from gateway.backends.providers.cloud_claude import asked_betas, claude_body
from gateway.backends.providers.gemini import operation, with_delay
from gateway.backends.providers.vertex.embeddings import REFUSED, embedded_alone, embeds_alone, predicted
from gateway.backends.providers.vertex.tokens import Tokens
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest

_VERSION = "vertex-2023-10-16"


class Vertex(ByToken):
    """A Vertex AI backend. Calls are addressed by project, location and model, and authenticated with an access token
    that is renewed."""

    models_path = None

    def __init__(self, backend: Backend, tokens: Tokens | None = None) -> None:
        super().__init__(backend)
        self.dialect = backend.spoken[0]
        file = backend.google_credentials
        self._by_key = bool(self.secret)
        if not self._by_key:
            self.tokens = tokens or Tokens(backend.name, file.removeprefix("file:") if file else None)
        model = quote(backend.sent_model, safe="@")
        place = f"/v1/projects/{backend.project}/locations/{backend.region}/publishers"
        self._embeds_alone = embeds_alone(backend.sent_model)
        self._google, self._anthropic = f"{place}/google/models/{model}", f"{place}/anthropic/models/{model}"

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        if wire.backend == "anthropic_messages":
            return f"{self._anthropic}:{'streamRawPredict' if request.stream else 'rawPredict'}"
        if request.dialect == "openai_embeddings":
            return f"{self._google}:{'embedContent' if self._embeds_alone else 'predict'}"
        return f"{self._google}:{operation(request)}"

    def sign(self, headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
        """Return `headers` with the access token, or with the API key in `x-goog-api-key`."""
        return [*headers, (b"x-goog-api-key", self.secret.encode())] if self._by_key else super().sign(headers, body)

    def headers(self, request: CompletionRequest, wire: Translator, body: bytes) -> list[tuple[bytes, bytes]]:
        """The headers of a request, without Anthropic's own headers. Clouds expect the API version in the body, and
        Google refuses unknown betas."""
        found = [pair for pair in super().headers(request, wire, body) if not pair[0].startswith(b"anthropic-")]
        betas = asked_betas(request, wire)
        return [*found, (b"anthropic-beta", ",".join(betas).encode())] if betas else found

    async def send(self, call: Call) -> Upstream:
        if call.wire.backend == "anthropic_messages":
            call.body = claude_body(call.body, _VERSION, streams_by_path=False)
        elif call.request.dialect == "openai_embeddings":
            body = embedded_alone(call.body) if self._embeds_alone else predicted(call.body)
            if body is None:
                return Canned(400, REFUSED, {})
            call.body = body
        return await with_delay(await super().send(call))
