"""Kind `litellm`: a worker's view of litellm's process. For the worker, the process is an OpenAI-compatible server on a
Unix socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from importlib.util import find_spec

import orjson

from gateway.backends.http.client import HttpClient, connect
from gateway.backends.providers.base import PATHS, Call, Upstream, error_body
from gateway.backends.providers.litellm.process import OwnProcess, Process
from gateway.backends.providers.litellm.protocol import BASE, FAILURE, HEALTH_PATH, LOAD_PATH, TIMEOUT
from gateway.backends.providers.over_http import OverHttp
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest, DialectName
from gateway.errors import BackendError, BackendGarbage, BackendTimeout, BackendUnreachable
from gateway.runtime.tasks import Tasks

log = logging.getLogger(__name__)

_LOAD_S = 60.0
"""Maximum seconds for the start of litellm's process and the import of the modules that a model needs."""
_FAILURES: Mapping[bytes, tuple[type[BackendError], str]] = {
    b"timeout": (BackendTimeout, "did not answer in time"),
    b"unreachable": (BackendUnreachable, "cannot be reached"),
    b"garbage": (BackendGarbage, "ended its stream without an answer"),
}
"""Value of the header `FAILURE` → the error to raise, because the provider sent no response."""


class ViaLitellm(OverHttp):
    """Accepts requests in OpenAI's dialects for chat and embeddings. litellm translates the requests for the provider
    of `backend.model` (for example `cohere_chat/…`)."""

    dialect: DialectName = "openai_chat"
    fetches = True
    models_path = HEALTH_PATH

    def __init__(self, backend: Backend, process: Process | None = None) -> None:
        """`process`: the process that calls litellm. None: this object starts a separate process."""
        self._own = OwnProcess()
        self._process: Process = process or self._own
        super().__init__(backend)
        self._backend, self._tasks = backend, Tasks()
        self._installed = find_spec("litellm") is not None

    def connect(self, backend: Backend) -> HttpClient:
        path = self._process.path
        return connect("http://litellm", concurrent=backend.concurrent, name=backend.name, socket_path=path)

    async def open(self) -> None:
        """Make litellm's process load the code for the backend's model, in the background. If litellm is not
        installed, only this backend is unusable.
        """
        if self._installed:
            self._tasks.spawn(self._load(), f"litellm for {self._backend.name}")
        else:
            log.error("backend %s needs litellm: pip install 'thriftgate[litellm]'", self._backend.name)

    async def aclose(self) -> None:
        await self._tasks.aclose()
        await super().aclose()
        await self._own.aclose()

    async def send(self, call: Call) -> Upstream:
        name = self._backend.name
        if not self._installed:
            missing = BackendUnreachable(f"{name} needs litellm, which is not installed", backend=name)
            raise missing.of_operator()
        await self._process.start()
        upstream = await super().send(call)
        failure = upstream.header(FAILURE)
        if failure is None:
            return upstream
        await upstream.aclose()
        error, words = _FAILURES.get(failure, _FAILURES[b"unreachable"])
        raise error(f"{name} {words}", backend=name)

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        return PATHS[wire.backend]

    def sign(self, headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
        """Return `headers` with the provider's key and address, and the time limit of a call. litellm's process reads
        these headers and passes the values to litellm."""
        backend = self._backend
        headers = [*super().sign(headers, body), (TIMEOUT, b"%g" % backend.timeout)]
        return [*headers, (BASE, backend.base_url.encode())] if backend.base_url else headers

    async def _load(self) -> None:
        until = asyncio.get_running_loop().time() + _LOAD_S
        body = orjson.dumps({"model": self._backend.sent_model})
        try:
            await self._process.start()
            response = await self._client.request(
                "POST", LOAD_PATH, (), body, deadline=until, first_byte_timeout=_LOAD_S
            )
        except BackendError as error:
            log.warning("backend %s: litellm's process is not ready: %s", self._backend.name, error.message)
            return
        problem = (await error_body(response)).decode("utf-8", "replace")
        await response.aclose()
        if response.status != 200:
            log.warning("litellm does not know how to reach %s: %s", self._backend.model, problem)
