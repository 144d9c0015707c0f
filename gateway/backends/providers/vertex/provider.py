"""Kind `vertex`: Gemini and Claude on Google's Vertex AI."""

from __future__ import annotations

from urllib.parse import quote

from gateway.backends.providers.base import Call, Upstream
from gateway.backends.providers.cloud_claude import asked_betas, claude_body
from gateway.backends.providers.gemini import operation
from gateway.backends.providers.over_http import OverHttp
from gateway.backends.providers.vertex.tokens import Token, Tokens
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest

_VERSION = "vertex-2023-10-16"


class Vertex(OverHttp):
    """A Vertex AI backend. Calls are addressed by project, location and model, and authenticated with an access token
    that is renewed."""

    models_path = None

    def __init__(self, backend: Backend, tokens: Tokens | None = None) -> None:
        super().__init__(backend)
        self.dialect = backend.spoken[0]
        file = backend.google_credentials
        self._tokens = tokens or Tokens(backend.name, file.removeprefix("file:") if file else None)
        self._by_key = bool(self.secret)
        model = quote(backend.sent_model, safe="@")
        place = f"/v1/projects/{backend.project}/locations/{backend.region}/publishers"
        self._google, self._anthropic = f"{place}/google/models/{model}", f"{place}/anthropic/models/{model}"

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        if wire.backend == "anthropic_messages":
            return f"{self._anthropic}:{'streamRawPredict' if request.stream else 'rawPredict'}"
        return f"{self._google}:{operation(request)}"

    def sign(self, headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
        """`headers` with the access token added, or with the API key added in `x-goog-api-key`."""
        return [*headers, (b"x-goog-api-key", self.secret.encode())] if self._by_key else super().sign(headers, body)

    def headers(self, request: CompletionRequest, wire: Translator, body: bytes) -> list[tuple[bytes, bytes]]:
        """The headers of a request, without Anthropic's own headers. Clouds expect the API version in the body, and
        Google refuses unknown betas."""
        found = [pair for pair in super().headers(request, wire, body) if not pair[0].startswith(b"anthropic-")]
        betas = asked_betas(request, wire)
        return [*found, (b"anthropic-beta", ",".join(betas).encode())] if betas else found

    async def send(self, call: Call) -> Upstream:
        """Send the call. If Google refuses the access token, and another token can be fetched, send the call again."""
        if call.wire.backend == "anthropic_messages":
            call.body = claude_body(call.body, _VERSION, streams_by_path=False)
        if self._by_key:
            return await super().send(call)
        token = await self._authorise(call)
        upstream = await super().send(call)
        if upstream.status != 401 or not await self._tokens.replaced(token):
            return upstream
        await upstream.aclose()
        await self._authorise(call)
        return await super().send(call)

    async def _authorise(self, call: Call) -> Token:
        token = await self._tokens.current()
        if token.value != self.secret:
            self.secret = token.value
            self.forget_heads()
        call.secret = token.value
        return token
