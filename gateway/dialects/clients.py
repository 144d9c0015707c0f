"""The client dialects and the paths that each is served on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gateway.dialects.anthropic_messages import dialect as anthropic_messages
from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.dialects.openai_completions import dialect as openai_completions
from gateway.dialects.openai_embeddings import dialect as openai_embeddings
from gateway.dialects.openai_responses import dialect as openai_responses
from gateway.dialects.passthrough import dialect as openai_other
from gateway.domain.policy import PassThrough
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.errors import GatewayError


class ClientDialect(Protocol):
    """A module each."""

    def parse(
        self, body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], /
    ) -> CompletionRequest:
        """Raises BadRequest naming the field for anything that the gateway could not act on."""
        ...

    def status(self, error: GatewayError, /) -> int:
        """As the dialect's clients expect it."""
        ...

    def error_body(self, error: GatewayError, request_id: str, /) -> bytes: ...

    def error_event(self, error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
        """The last event of a stream that broke; no terminating one follows it. `sent`: the events just before it."""
        ...

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        """A stored plain body's answers as chat choices."""
        ...

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """A stream that says what the plain `body` says: all its events but the terminating one, and that one."""
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
    **{f"/v1{path}": spoken for path, spoken in _OPENAIS.items()},
    "/v1/messages": anthropic_messages,
}
"""Inference paths. Some clients leave out `/v1`, since their vendor's base URL has it."""
DIALECTS: Mapping[DialectName, ClientDialect] = {
    "openai_chat": openai_chat,
    "openai_completions": openai_completions,
    "openai_embeddings": openai_embeddings,
    "openai_responses": openai_responses,
    "anthropic_messages": anthropic_messages,
}
"""Of which answers may be kept."""
PASSED_THROUGH: Mapping[str, PassThrough] = {
    prefix + path: what for path, what in openai_other.ENDPOINTS.items() for prefix in ("", "/v1")
}
"""Path → what a policy has to allow there."""


def of_path(path: str) -> ClientDialect:
    """In whose shape to answer whatever is asked at `path`, also below it, and where there is nothing."""
    while path:
        if found := PATHS.get(path):
            return found
        path, _, _ = path.rpartition("/")
    return openai_chat
