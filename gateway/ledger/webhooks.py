"""Posts alerts to the operator's webhooks; whatever goes wrong comes back as words that hide the address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from gateway import __version__
from gateway.settings.environment import webhook_url

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S = 10.0


class Webhooks:
    """`url_of` finds the address behind a policy's `env:NAME`; it is read anew for every call."""

    def __init__(self, *, url_of: Callable[[str], str] = webhook_url, timeout_s: float = TIMEOUT_S) -> None:
        self._url_of, self._timeout_s = url_of, timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def _client(self) -> aiohttp.ClientSession:
        """Made for the first alert: aiohttp takes 0.2 s and 8 MiB, which most gateways never need."""
        async with self._opening:
            if self._session is None:
                await asyncio.to_thread(import_module, "aiohttp")
                import aiohttp

                self._session = aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                    headers={"user-agent": f"thriftgate/{__version__}", "content-type": "application/json"},
                )
            return self._session

    async def aclose(self) -> None:
        self._open = False
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, target: str, id: str, payload: bytes) -> str:
        """Empty when the receiver accepted it with a 2xx, else what went wrong. `id` lets it drop repetitions."""
        url = self._url_of(target)
        if not url:
            return f"{target} is not set in the gateway's environment"
        if not self._open:
            return "the gateway is stopping"
        session = await self._client()
        from aiohttp import ClientError

        try:
            async with session.post(
                url, data=payload, headers={"idempotency-key": id}, allow_redirects=False
            ) as response:
                return _verdict(response.status)
        except TimeoutError:
            return f"no answer within {self._timeout_s:g} s"
        except (ClientError, OSError, ValueError) as error:
            # Their text repeats the address, and a webhook's address is a secret.
            return f"cannot be reached ({type(error).__name__})"

    async def post_all(self, letters: list[tuple[str, str, bytes]]) -> list[str]:
        """Several at once, so that one receiver that hangs keeps no other waiting."""
        return list(await asyncio.gather(*(self.post(*letter) for letter in letters)))


def _verdict(status: int) -> str:
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"answered {status}; redirects are not followed, so set the variable to the final address"
    return f"answered {status}"
