"""Kind `ollama`: servers with Ollama's own API.

The window of the model is sent with each call, because Ollama's default is smaller than the models' windows. Legacy
completions go through Ollama's OpenAI API, which can insert text (`suffix`).
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import orjson

from gateway.backends.providers.base import Call, Upstream
from gateway.backends.providers.converted import Converted
from gateway.backends.providers.over_http import OverHttp
from gateway.dialects.base import Translator
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest, DialectName

log = logging.getLogger(__name__)

_READ = re.compile(rb'"prompt_eval_count":\s*(\d{1,9})')


class Ollama(OverHttp):
    """A server with Ollama's own API."""

    dialect: DialectName = "ollama_chat"
    models_path = "/api/tags"

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._name, self._window = backend.name, backend.window_tokens

    def url(self, request: CompletionRequest, wire: Translator) -> str:
        if wire.backend != self.dialect:
            return f"/v1{super().url(request, wire)}"
        return "/api/embed" if request.dialect == "openai_embeddings" else "/api/chat"

    async def send(self, call: Call) -> Upstream:
        if call.wire.backend != self.dialect:
            return await super().send(call)
        if self._window is not None:
            call = replace(call, body=with_window(call.body, self._window))
        upstream = await super().send(call)
        return Lines(upstream, self._name, self._window) if upstream.status == 200 else upstream


def with_window(body: bytes, tokens: int) -> bytes:
    """The request `body` with a context window of `tokens`, which replaces the client's."""
    fields = orjson.loads(body)
    return orjson.dumps({**fields, "options": {**fields["options"], "num_ctx": tokens}})


class Lines(Converted):
    """Wraps an `Upstream` whose body consists of lines of JSON, and converts the lines to server-sent events.

    Logs a warning if the server has cut the prompt.
    """

    def __init__(self, inner: Upstream, backend: str, window: int | None) -> None:
        """`window`: the context window in tokens; None: the server's own window is used."""
        super().__init__(inner)
        self._backend, self._window = backend, window
        self._begun = False

    def _convert(self, piece: bytes) -> bytes:
        self._look(piece)
        events = piece.replace(b"\n", b"\n\ndata: ")  # JSON contains no line breaks
        begins, self._begun = not self._begun, True
        return b"data: " + events if begins else events

    async def read(self, limit: int) -> bytes:
        body = await super().read(limit)
        self._look(body)
        return body

    def _look(self, piece: bytes) -> None:
        """Log a warning if the server reports that the prompt fills the whole window: the prompt was probably cut.
        Servers before 0.12.6 answer such a request; later versions refuse it."""
        at = piece.rfind(b'"prompt_eval_count"')
        found = _READ.match(piece, at) if self._window and at >= 0 else None
        if found and self._window and int(found[1]) >= self._window:
            log.warning(
                "backend %s has cut a prompt to its context window of %d tokens and answered the rest: update Ollama "
                "to 0.12.6 or later, which refuses such prompts", self._backend, self._window,
            )  # fmt: skip
