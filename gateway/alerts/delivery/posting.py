"""The HTTP client for webhook receivers. Its error texts contain no addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from gateway import __version__

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S = 10.0


class Poster:
    """Posts alerts to receivers. It does not follow redirects, so that alerts reach only addresses that the operator
    chose."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[bool, str]:
        """Post `body` to `url`, an http or https URL. Returns whether the status was 2xx, and the status or the error
        as text. Never raises."""
        session = await self._client()
        from aiohttp import ClientError

        try:
            async with session.post(url, data=body, headers=headers, allow_redirects=False) as response:
                return 200 <= response.status < 300, _told(response.status)
        except TimeoutError:
            return False, f"no answer within {self._timeout_s:g} s"
        except (ClientError, OSError, ValueError) as error:
            # The error's own text contains the address, and a webhook's address is a secret.
            return False, f"cannot be reached ({type(error).__name__})"

    async def _client(self) -> aiohttp.ClientSession:
        """The HTTP client. It is created for the first alert, because the import of aiohttp takes 0.2 s and 8 MiB and
        most gateways send no alerts."""
        async with self._opening:
            if self._session is None:
                await asyncio.to_thread(import_module, "aiohttp")
                import aiohttp

                self._session = aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                    headers={"user-agent": f"thriftgate/{__version__}", "content-type": "application/json"},
                )
            return self._session


def _told(status: int) -> str:
    if 300 <= status < 400:
        return f"answered {status}; redirects are not followed, so set the variable to the final address"
    return f"answered {status}"
