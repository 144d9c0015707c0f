"""The client dialects, and the paths on which each dialect is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gateway.dialects.anthropic_messages import dialect as anthropic_messages
from gateway.dialects.gemini_generate import dialect as gemini_generate
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.dialects.openai_completions import dialect as openai_completions
from gateway.dialects.openai_embeddings import dialect as openai_embeddings
from gateway.dialects.openai_responses import dialect as openai_responses
from gateway.dialects.passthrough import dialect as openai_other
from gateway.domain.policy import PassThrough
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.errors import GatewayError


class ClientDialect(Protocol):
    """The functions of a client dialect. Each dialect implements them in one module."""

    def parse(
        self, body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], /
    ) -> CompletionRequest:
        """Parse a request. Raises BadRequest, with the field's name, if the gateway cannot process it."""
        ...

    def status(self, error: GatewayError, /) -> int:
        """The HTTP status code of `error` in this dialect."""
        ...

    def error_body(self, error: GatewayError, request_id: str, /) -> bytes: ...

    def error_event(self, error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
        """The last event of a stream that failed. No terminating event follows. `sent`: the latest events that were
        sent to the client."""
        ...

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        """The answers in a stored plain body, in the format of chat choices."""
        ...

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """Convert a plain `body` to a stream. Returns two values: all events except the terminating event, and the
        terminating event."""
        ...


_OPENAIS: Mapping[str, ClientDialect] = {
    "/chat/completions": openai_chat,
    "/completions": openai_completions,
    "/embeddings": openai_embeddings,
    "/responses": openai_responses,
    **{path: openai_other.Endpoint(path) for path in openai_other.ENDPOINTS},
}
PATHS: Mapping[str, ClientDialect] = {
    **_OPENAIS,
    **{f"/v1{path}": dialect for path, dialect in _OPENAIS.items()},
    "/v1/messages": anthropic_messages,
}
"""Path of an inference endpoint → client dialect. OpenAI's paths are also served without `/v1`, because the base URLs
of some vendors already contain `/v1`."""
DIALECTS: Mapping[DialectName, ClientDialect] = {
    "openai_chat": openai_chat,
    "openai_completions": openai_completions,
    "openai_embeddings": openai_embeddings,
    "openai_responses": openai_responses,
    "anthropic_messages": anthropic_messages,
    "gemini_generate": gemini_generate.Endpoint("", stream=False),
}
"""Dialects whose answers can be cached."""
PASSED_THROUGH: Mapping[str, PassThrough] = {
    prefix + path: what for path, what in openai_other.ENDPOINTS.items() for prefix in ("", "/v1")
}
"""Path → the permission that a policy must grant for this path."""


def at(path: str) -> ClientDialect | None:
    """The dialect of the inference endpoint at `path`; None if no endpoint has this path. `path` may contain the name
    of a model."""
    return PATHS.get(path) or gemini_generate.at(path)


def of_path(path: str) -> ClientDialect:
    """The dialect for errors and other answers to requests at `path` or below it. For unknown paths, OpenAI chat."""
    if found := gemini_generate.named_in(path):
        return found
    while path:
        if known := PATHS.get(path):
            return known
        path, _, _ = path.rpartition("/")
    return openai_chat
