"""Serves `/dashboard`: the static files of the page, and its data. The files are public, because they contain no
figures. The data need a key."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.dashboard.data import Errors, Figures
from gateway.dashboard.parts import Prices
from gateway.dashboard.views import Flight, Health, Needs, Views
from gateway.domain.backend import Backend
from gateway.domain.protocols import Clock
from gateway.learning.feedback import Feedback
from gateway.policy.load import Policies
from gateway.runtime.lazy import Lazy
from gateway.state.sql.database import Database

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",  # licences
}
SECURITY = {
    # No inline scripts or styles and no content from other hosts. Forms are never submitted, so no key is in a URL.
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    media_type: str
    etag: str


class Dashboard:
    """The routes of the page."""

    def __init__(
        self,
        *,
        needs: Needs,
        database: Database,
        policies: Policies,
        prices: Prices,
        backends: Callable[[], Sequence[Backend]],
        feedback: Feedback,
        errors: Errors,
        flight: Flight,
        health: Health,
        clock: Clock = time,
    ) -> None:
        self._figures = Figures(
            database=database,
            policies=policies,
            prices=prices,
            backends=backends,
            feedback=feedback,
            errors=errors,
            clock=clock,
        )
        self._views = Views(
            needs=needs, database=database, figures=self._figures, flight=flight, health=health, clock=clock
        )
        self._files = Lazy(partial(_read, STATIC))  # most workers never serve the page
        self.routes = [
            Route("/dashboard", self.page),
            Route("/dashboard/static/{path:path}", self.static),
            *self._views.routes,
        ]

    async def aclose(self) -> None:
        await self._figures.aclose()

    async def page(self, request: Request) -> Response:
        if request.scope.get("raw_path", b"").endswith(b"/"):  # the page's relative links need the path without it
            return Response(status_code=308, headers={"location": "../dashboard"})
        return await self._send(request, PAGE)

    async def static(self, request: Request) -> Response:
        return await self._send(request, request.path_params["path"])

    async def _send(self, request: Request, path: str) -> Response:
        """Send a static file of the page. Only the names of known files are accepted, so no path can lead out of the
        folder."""
        file = (await self._files.load()).get(path)
        if file is None:
            raise HTTPException(404)
        headers = {**SECURITY, "etag": file.etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers=headers, media_type=file.media_type)

    def stats(self) -> dict[str, int | float | str]:
        return {"served": self._views.served, "computed": self._figures.computed}


def _read(folder: Path) -> dict[str, _File]:
    """Read all files of the page below `folder`: path → file."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            body = path.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            files[path.relative_to(folder).as_posix()] = _File(body, TYPES[path.suffix], etag)
    return files
