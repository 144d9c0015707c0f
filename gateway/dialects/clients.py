"""The dialects that clients speak, and where each is spoken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gateway.dialects import openai_chat
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

    def error_event(self, error: GatewayError, request_id: str, /) -> bytes:
        """The last event of a stream that broke; no terminating one follows it."""
        ...

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        """A stored plain body's answers as chat choices."""
        ...

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """A stream that says what the plain `body` says: all its events but the terminating one, and that one."""
        ...


PATHS: Mapping[str, ClientDialect] = {
    "/v1/chat/completions": openai_chat,
    "/chat/completions": openai_chat,
}
"""Inference paths. Some clients leave out `/v1`, since their vendor's base URL has it."""
DIALECTS: Mapping[DialectName, ClientDialect] = {"openai_chat": openai_chat}


def of_path(path: str) -> ClientDialect:
    """In whose shape to answer whatever is asked at `path`, also where there is nothing."""
    return PATHS.get(path, openai_chat)
