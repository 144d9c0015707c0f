"""Translator for OpenAI's other endpoints. Client and backend use the same dialect, so the bytes pass through. Only the
usage is read."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers import upstream_error
from gateway.dialects.answers.plain import Plain
from gateway.dialects.answers.usage import any_usage, counted
from gateway.dialects.openai_chat.native import quoted
from gateway.dialects.passthrough import form
from gateway.dialects.passthrough.stream import Events, Opaque
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused


class Passthrough:
    """Implements `Translator` for passed-through paths. The content type decides how an answer is read."""

    client: DialectName = "openai_other"
    backend: DialectName = "openai_other"

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        if model == request.model:
            return request.raw
        content_type = request.headers[b"content-type"]
        if not form.is_form(content_type):
            return json_splice.splice(request.raw, request.body, {"model": quoted(model)})
        named = [part for part in form.parts(request.raw, content_type) if part.name == "model" and not part.file]
        return json_splice.replace(request.raw, [((part.start, part.end), model.encode()) for part in named])

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        return []

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        return request.headers.items()

    def reader(self, request: CompletionRequest) -> Events:
        return Events()

    def reader_of(self, content_type: str) -> Events | Opaque | None:
        """The reader for a streamed answer of this content type. None if the answer is not read as a stream, but as a
        whole."""
        if content_type.startswith("text/event-stream"):
            return Events()
        return None if content_type.startswith(("application/json", "text/")) else Opaque()

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        """Read a plain answer: JSON or text of any content."""
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError:
            parsed = None
        usage = any_usage(parsed.get("usage")) if type(parsed) is dict else None
        return Plain(body, counted(usage, request.estimated_tokens or 0), "stop", None, [])

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        return upstream_error.refusal(status, upstream_error.error_in(body), backend)
