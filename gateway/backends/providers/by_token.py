"""Base class of providers whose calls are authenticated with an access token that is renewed."""

from __future__ import annotations

from collections.abc import Awaitable

from gateway.backends.providers.base import Call, Upstream
from gateway.backends.providers.over_http import OverHttp
from gateway.backends.providers.renewal import Renewed, Token


class ByToken(OverHttp):
    """A provider whose calls have an access token, or a key if `tokens` is None.

    If the provider refuses the token, and another token can be fetched, the call is sent once more.
    """

    tokens: Renewed[Token] | None = None

    async def aclose(self) -> None:
        if self.tokens is not None:
            await self.tokens.aclose()
        await super().aclose()

    def send(self, call: Call) -> Awaitable[Upstream]:
        return super().send(call) if self.tokens is None else self._send(call, self.tokens)

    async def _send(self, call: Call, tokens: Renewed[Token]) -> Upstream:
        token = self.authorise(await tokens.within(call.deadline), call)
        upstream = await super().send(call)
        if upstream.status != 401 or not await tokens.replaced(token):
            return upstream
        await upstream.aclose()
        self.authorise(await tokens.within(call.deadline), call)
        return await super().send(call)

    def authorise(self, token: Token, call: Call | None = None) -> Token:
        """Use `token` for the next request. `call`: the call that is sent with it."""
        if token.value != self.secret:
            self.secret = token.value
            self.forget_heads()
        if call is not None:
            call.secret = token.value
        return token
