"""Kind `anthropic`: backends with Anthropic's messages API."""

from __future__ import annotations

import asyncio

import orjson

from gateway.backends.providers.over_http import OverHttp
from gateway.dialects import json_splice
from gateway.dialects.anthropic_messages.native import MessagesToMessages
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BackendError

_COUNT_S = 10.0
_MOST_COUNT_BYTES = 4096


class Anthropic(OverHttp):
    """A backend with Anthropic's messages API."""

    dialect: DialectName = "anthropic_messages"

    def sign(self, headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
        """Return `headers` with the backend's key in `x-api-key`. Without a key, the headers do not change."""
        return [*headers, (b"x-api-key", self.secret.encode())] if self.secret else headers

    async def count_tokens(self, request: CompletionRequest, model: str) -> int | None:
        """The number of tokens of the prompt, counted by the backend free of charge. None if the backend does not
        answer."""
        until = asyncio.get_running_loop().time() + _COUNT_S
        body = json_splice.splice(request.raw, request.body, {"model": orjson.dumps(model)})
        try:
            headers = self.headers(request, MessagesToMessages(), body)
            upstream = await self._client.request(
                "POST", "/messages/count_tokens", headers, body, deadline=until, first_byte_timeout=_COUNT_S
            )
            try:
                reply = orjson.loads(await upstream.read(_MOST_COUNT_BYTES)) if upstream.status == 200 else None
            finally:
                await upstream.aclose()
        except (BackendError, orjson.JSONDecodeError):
            return None
        counted = reply.get("input_tokens") if type(reply) is dict else None
        return counted if type(counted) is int and counted >= 0 else None
