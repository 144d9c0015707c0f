"""Base class for credentials that expire. Such a credential is fetched when it is needed, and replaced before it
expires."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import ClassVar, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import orjson

from gateway.backends.http.client import connect
from gateway.errors import BackendError, BackendFailed
from gateway.runtime.tasks import Tasks

log = logging.getLogger(__name__)

EARLY_S = 300.0
"""Credentials are replaced this number of seconds before they expire."""
LOOK_AGAIN_S = 30.0
"""Seconds until credentials are searched again, after a failure or if the credentials have no known expiry time. Until
then, the last credentials are used."""
_SOON_S = 1.0
"""Seconds until credentials are searched again if there are none. Each further failure doubles the pause, up to
`LOOK_AGAIN_S`."""
_MOST_BYTES = 64 * 2**10
_AADSTS = re.compile(r"AADSTS\d{4,9}")
"""Matches the number of an error of Microsoft Entra ID."""

Headers = list[tuple[bytes, bytes]]


class Expiring(Protocol):
    """A credential with an expiry time. Two credentials are equal if they are the same for the provider."""

    @property
    def expires_at(self) -> float | None:
        """Unix seconds; None: the credential has no known expiry time."""
        ...


@dataclass(frozen=True, slots=True)
class Token:
    """An access token, which is sent as a bearer token."""

    value: str = field(repr=False)
    expires_at: float | None = field(compare=False)
    """Unix seconds; None: unknown."""


C = TypeVar("C", bound=Expiring)


class Renewed(ABC, Generic[C]):
    """The current credential of a backend. A subclass implements `_find`, which fetches the credential.

    Simultaneous callers share one fetch. While the credential is valid, no caller waits for its replacement.
    """

    tries_expired: ClassVar[bool] = True
    """Whether an expired credential is used if no new one can be fetched, because this machine's clock may be
    wrong."""

    def __init__(self, backend: str, what: str, page: str) -> None:
        """`what`: the name of the credential in messages. `page`: the documentation page that explains the
        credential."""
        self._backend, self._what, self._page = backend, what, page
        self._tasks = Tasks()
        self._fetch: asyncio.Task[None] | None = None
        self._look_at = self._replaced_at = float("-inf")
        self._pause_s = _SOON_S
        self._found: C | None = None
        self.trouble = ""
        """The reason why the last fetch failed; empty if it succeeded. It contains no secret."""

    @abstractmethod
    async def _find(self) -> C | None:
        """Fetch a new credential; None if there is none. May raise BackendError, OSError, and the errors of parsing."""

    async def aclose(self) -> None:
        """Stop a fetch in progress."""
        await self._tasks.aclose()

    def prepare(self) -> None:
        """Start to fetch the credential in the background. Does nothing if the credential is known."""
        if self._found is None:
            self._begin()

    async def within(self, until: float) -> C:
        """The current credential. Waits for a fetch at most until `until` (loop time). Raises BackendFailed if there is
        no credential by then."""
        now = time.time()
        if now < self._look_at and (found := self._found) is not None and self._valid(now):
            return found
        try:
            async with asyncio.timeout_at(until):
                return await self.current()
        except TimeoutError:  # BackendTimeout would mean that the backend may have read the prompt
            raise BackendFailed(f"{self._backend} got no {self._what} in time; see {self._page}") from None

    async def current(self) -> C:
        """The current credential. Raises BackendFailed if there is no credential."""
        if (now := time.time()) >= self._look_at:
            fetch = self._begin()
            if not self._valid(now):
                await asyncio.shield(fetch)
        found = self._found
        if found is None or not (self.tries_expired or self._valid(time.time())):
            raise BackendFailed(f"{self._backend} has no {self._what}; see {self._page}").of_operator()
        return found

    async def replaced(self, refused: C) -> bool:
        """Fetch the credential again, because the provider does not accept `refused`, the credential in use.
        Returns whether the credential is a different one now.

        Fetches at most once per `LOOK_AGAIN_S`. Otherwise a provider that refuses every credential would cause a
        fetch with each call.
        """
        if self._found == refused and time.time() - self._replaced_at >= LOOK_AGAIN_S:
            self._replaced_at = time.time()
            self._begin()
        if self._found == refused and self._fetch is not None:
            await asyncio.shield(self._fetch)
        return self._found is not None and self._found != refused

    def _valid(self, now: float) -> bool:
        found = self._found
        return found is not None and (found.expires_at is None or now < found.expires_at)

    def _begin(self) -> asyncio.Task[None]:
        """The fetch in progress. Starts one if there is none."""
        if self._fetch is None or self._fetch.done():
            self._fetch = self._tasks.spawn(self._look(), f"{self._what} of {self._backend}")
        return self._fetch

    async def _look(self) -> None:
        """Fetch a credential. If the fetch fails, the last credential is kept."""
        found: C | None = None
        trouble = ""
        try:
            found = await self._find()
        except (BackendError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            trouble = str(error)
            if trouble != self.trouble:  # else the log has this line already
                log.warning("%s: %s cannot be read: %s", self._backend, self._what, error)
        self.trouble = trouble
        now = time.time()
        if found is None:
            pause_s = LOOK_AGAIN_S if self._valid(now) else self._pause_s
            self._pause_s = min(self._pause_s * 2, LOOK_AGAIN_S)
            self._look_at = now + pause_s
            return
        self._found, self._pause_s = found, _SOON_S
        ends = found.expires_at
        self._look_at = now + LOOK_AGAIN_S if ends is None else max(ends - EARLY_S, now + 1.0)


class CredentialRefused(BackendFailed):
    """The credentials' endpoint answered with another status than 200. `answered_at`: Unix seconds of the endpoint's
    clock; None if unknown."""

    def __init__(self, message: str, answered_at: float | None = None) -> None:
        super().__init__(message)
        self.answered_at = answered_at


def their_time(date: bytes | None) -> float | None:
    """Unix seconds of a header `date`; None if it is missing or unreadable."""
    try:
        read = parsedate_to_datetime((date or b"").decode("latin-1"))
    except (ValueError, OverflowError):
        return None
    return read.replace(tzinfo=read.tzinfo or UTC).timestamp()


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
            raise CredentialRefused(
                f"{at.hostname} answered {reply.status}: {_why(answer)}", their_time(reply.header(b"date"))
            )
        return answer
    finally:
        await client.aclose()


def _why(answer: bytes) -> str:
    """The error codes in the answer: OAuth's code, and the numbers of Entra's errors. The descriptions are left out,
    because they may contain a secret."""
    try:
        read = orjson.loads(answer)
        code, numbers = read.get("error"), _AADSTS.findall(str(read.get("error_description")))
    except (ValueError, AttributeError):
        return "no reason given"
    text = code[:100] if type(code) is str else "no reason given"
    return f"{text} ({', '.join(dict.fromkeys(numbers[:3]))})" if numbers else text
