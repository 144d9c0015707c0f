"""Posts alerts to the operator's webhooks; whatever goes wrong comes back as words that hide the address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from gateway import __version__
from gateway.settings.environment import webhook_url

TIMEOUT_S = 10.0


class Webhooks:
    """`url_of` finds the address behind a policy's `env:NAME`; it is read anew for every call."""

    def __init__(self, *, url_of: Callable[[str], str] = webhook_url, timeout_s: float = TIMEOUT_S) -> None:
        self._url_of, self._timeout_s = url_of, timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            headers={"user-agent": f"thriftgate/{__version__}", "content-type": "application/json"},
        )

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, target: str, id: str, payload: bytes) -> str:
        """Empty when the receiver accepted it with a 2xx, else what went wrong. `id` lets it drop repetitions."""
        url = self._url_of(target)
        if not url:
            return f"{target} is not set in the gateway's environment"
        if self._session is None:
            return "the gateway is stopping"
        try:
            async with self._session.post(
                url, data=payload, headers={"idempotency-key": id}, allow_redirects=False
            ) as response:
                return _verdict(response.status)
        except TimeoutError:
            return f"no answer within {self._timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
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
