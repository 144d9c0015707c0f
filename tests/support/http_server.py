"""A scripted HTTP service on a local port."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from aiohttp import web


class HttpServer(ABC):
    """An async context manager that serves the routes of its subclass at `url`."""

    notices_hang_ups: ClassVar[bool] = False
    """Whether a handler is cancelled when its client leaves."""
    port = 0
    """Port to listen on; 0: any free one. An instance may have its own."""
    _runner: web.AppRunner | None = None

    @abstractmethod
    def routes(self) -> list[web.RouteDef]: ...

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**26)
        app.router.add_routes(self.routes())
        runner = web.AppRunner(app, handler_cancellation=self.notices_hang_ups)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True).start()
        self._runner = runner
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._running.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._running.addresses[0][1]}"

    @property
    def _running(self) -> web.AppRunner:
        assert self._runner is not None, "not entered"
        return self._runner
