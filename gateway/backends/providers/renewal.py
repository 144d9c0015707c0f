"""Base class for credentials that expire. Such a credential is fetched when it is needed, and replaced before it
expires."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import orjson

from gateway.backends.http.client import connect
from gateway.errors import BackendError, BackendFailed

log = logging.getLogger(__name__)

EARLY_S = 300.0
"""Credentials are replaced this number of seconds before they expire."""
_LOOK_AGAIN_S = 30.0
"""Seconds until credentials are searched again, after a failure or if the credentials have no known expiry time. Until
then, the last credentials are used."""
_MOST_BYTES = 64 * 2**10

Headers = list[tuple[bytes, bytes]]


class Expiring(Protocol):
    """A credential with an expiry time. Two credentials are equal if the provider cannot distinguish them."""

    @property
    def expires_at(self) -> float | None:
        """Unix seconds; None: the credential has no known expiry time."""
        ...


C = TypeVar("C", bound=Expiring)


class Renewed(ABC, Generic[C]):
    """The current credential of a backend. A subclass implements `_find`, which fetches the credential."""

    def __init__(self, backend: str, what: str, page: str) -> None:
        """`what`: the name of the credential in messages. `page`: the documentation page that explains the
        credential."""
        self._backend, self._what, self._page = backend, what, page
        self._lock = asyncio.Lock()
        self._look_at = 0.0
        self._found: C | None = None

    @abstractmethod
    async def _find(self) -> C | None:
        """Fetch a new credential; None if there is none. May raise BackendError, OSError, and the errors of parsing."""

    async def current(self) -> C:
        """The current credential. Raises BackendFailed if there is no credential."""
        if self._found is None or time.time() >= self._look_at:
            async with self._lock:
                if self._found is None or time.time() >= self._look_at:
                    await self._look()
        if self._found is None:
            raise BackendFailed(f"{self._backend} has no {self._what}; see {self._page}").of_operator()
        return self._found

    async def replaced(self, refused: C) -> bool:
        """Fetch the credential again, because the provider does not accept `refused`, the credential in use. Returns
        whether the credential is a different one now."""
        async with self._lock:
            if self._found == refused:
                await self._look()
        return self._found is not None and self._found != refused

    async def _look(self) -> None:
        """Fetch a credential. If the fetch fails, the last credential is kept while the provider accepts it."""
        found: C | None = None
        try:
            found = await self._find()
        except (BackendError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            log.warning("%s: %s cannot be read: %s", self._backend, self._what, error)
        self._found, now = found or self._found, time.time()
        ends = found.expires_at if found else None
        self._look_at = now + _LOOK_AGAIN_S if ends is None else max(ends - EARLY_S, now + 1.0)


async def ask(method: str, url: str, headers: Headers, body: bytes = b"", *, wait_s: float) -> bytes:
    """The body of an answer with status 200. Raises BackendError for other answers, and after `wait_s` seconds. The
    error's text contains nothing that was sent."""
    at = urlsplit(url)
    client = connect(f"{at.scheme}://{at.netloc}", concurrent=1, name=f"the credentials' endpoint {at.hostname}")
    try:
        until = asyncio.get_running_loop().time() + wait_s
        path = f"{at.path}?{at.query}" if at.query else at.path
        reply = await client.request(method, path, headers, body, deadline=until, first_byte_timeout=wait_s)
        answer = await reply.read(_MOST_BYTES)
        if reply.status != 200:
            raise BackendFailed(f"{at.hostname} answered {reply.status}: {_why(answer)}")
        return answer
    finally:
        await client.aclose()


def _why(answer: bytes) -> str:
    """OAuth's error code, which contains no secret."""
    try:
        code = orjson.loads(answer).get("error")
    except (ValueError, AttributeError):
        code = None
    return code[:100] if type(code) is str else "no reason given"
