"""Kind `azure`: OpenAI's models in Azure OpenAI and Azure AI Foundry.

With `api_version`, calls go to `/openai/deployments/DEPLOYMENT/…?api-version=…`. Without it, they go to
`/openai/v1/…`, and the body names the deployment.
"""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import quote

from gateway.backends.providers.azure.tokens import EntraTokens
from gateway.backends.providers.base import PATHS
from gateway.backends.providers.by_token import ByToken
from gateway.backends.providers.openai import OpenAI
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest
from gateway.errors import BackendFailed
from gateway.runtime.tasks import Tasks, repeat
from gateway.settings.environment import secret
from gateway.settings.files import ConfigError

log = logging.getLogger(__name__)

READ_AGAIN_S = 10.0
"""Seconds between two reads of a token file. Entra's tokens are valid for at least an hour."""
_BESIDE_DEPLOYMENTS = frozenset({"openai_responses"})
"""Dialects whose endpoint is not below the address of a deployment. For these dialects, the body names the deployment.
"""


class Azure(ByToken, OpenAI):
    """Addresses calls by deployment. Authenticates with `api-key`, with a bearer token that may change at runtime, or
    with a token that the gateway requests from Microsoft Entra."""

    def __init__(
        self, backend: Backend, *, read_again_s: float = READ_AGAIN_S, tokens: EntraTokens | None = None
    ) -> None:
        super().__init__(backend)
        if backend.auth == "entra":
            self.tokens = tokens or EntraTokens(backend)
        self._name, self._deployment = backend.name, quote(backend.sent_model, safe="")
        self._version = backend.api_version
        self.models_path = f"/openai/models?api-version={self._version}" if self._version else "/openai/v1/models"
        self._token, self._read_again_s = backend.bearer_token, read_again_s
        self._tasks = Tasks()

    async def open(self) -> None:
        """Read the bearer token, or start to request one. Raises ConfigError if a configured token cannot be read."""
        if self.tokens is not None:
            self.tokens.prepare()
        if self._token is None:
            return
        self.secret = await asyncio.to_thread(self._read, self._token)
        if self._token.startswith("file:"):
            self._tasks.spawn(self._follow(self._token), f"token of {self._name}")

    async def aclose(self) -> None:
        await self._tasks.aclose()
        await super().aclose()

    async def look(self, within_s: float) -> tuple[int, bytes]:
        """Read the list of models, in at most `within_s` seconds. Raises BackendError. If Entra gives no token, the
        error contains Entra's reason."""
        if self.tokens is not None:
            try:
                self.authorise(await self.tokens.within(asyncio.get_running_loop().time() + within_s))
            except BackendFailed as error:
                why = self.tokens.trouble or f"no answer within {within_s:g} s"
                raise BackendFailed(f"gets no token of Microsoft Entra: {why}").of_operator() from error
        return await super().look(within_s)

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        path = PATHS.get(wire.backend) or request.path
        if self._version is None:
            return f"/openai/v1{path}"
        below = "/openai" if wire.backend in _BESIDE_DEPLOYMENTS else f"/openai/deployments/{self._deployment}"
        return f"{below}{path}?api-version={self._version}"

    def sign(self, headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
        """Return `headers` with the key in `api-key`, or with the bearer token."""
        if self._token is None and self.tokens is None:
            return [*headers, (b"api-key", self.secret.encode())]
        return super().sign(headers, body)

    async def _follow(self, reference: str) -> None:
        """Read the bearer token again whenever its file changes. `reference`: the configured reference to the file.

        While the file cannot be read, the last token is used.
        """

        async def look() -> None:
            token = await asyncio.to_thread(self._read, reference)
            if token != self.secret:
                self.secret = token
                self.forget_heads()

        def troubled(error: Exception) -> None:
            log.warning("%s; the last token is used meanwhile", error)

        await repeat(look, self._read_again_s, troubled, ConfigError)

    def _read(self, reference: str) -> str:
        token = secret(reference, f"backends.{self._name}.bearer_token")
        if not token:
            raise ConfigError([f"backends.{self._name}.bearer_token: {reference} is empty"])
        return token
