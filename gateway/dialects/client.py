"""The interface of a client dialect. Also the entry with which the package of a dialect registers the dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.dialects.base import Translator
from gateway.dialects.via_chat import Translation
from gateway.domain.continued import Continued
from gateway.domain.policy import PassThrough
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import GatewayError


class ClientDialect(Protocol):
    """The functions of a client dialect."""

    def parse(
        self, body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], /
    ) -> CompletionRequest:
        """Parse a request. Raises BadRequest, with the name of the wrong field, if the gateway cannot process the
        request."""
        ...

    def status(self, error: GatewayError, /) -> int:
        """The HTTP status code of `error` in this dialect."""
        ...

    def error_body(self, error: GatewayError, request_id: str, /) -> bytes: ...

    def error_event(self, error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
        """The last event of a stream that failed. No terminating event follows. `sent`: the last events that the client
        got; some dialects continue their numbering."""
        ...

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        """The answers in a stored plain body, in the format of chat choices."""
        ...

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """Convert a plain `body` to a stream. Returns two values: all events except the terminating event, and the
        terminating event."""
        ...


class ConversationDialect(Protocol):
    """The functions of a client dialect in which each request repeats the conversation so far."""

    CONVERSATION: str
    """The field with the conversation, a list."""

    def parse(
        self,
        body: bytes,
        request_id: str,
        controls: Controls,
        headers: Mapping[bytes, bytes],
        continued: Continued | None,
        /,
    ) -> CompletionRequest:
        """Parse a request. Raises BadRequest, with the name of the wrong field, if the gateway cannot process the
        request.

        `continued`: the body, already parsed as the continuation of an earlier request; None: the body must be
        parsed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shown:
    """The description of an operation in `/openapi.json`."""

    id: str
    summary: str
    body: Mapping[str, Any]
    """The JSON schema of the request's body; empty if the request has no body."""


@dataclass(frozen=True, slots=True)
class Count:
    """A route that counts the tokens of a prompt."""

    paths: tuple[str, ...]
    """The paths of the route. A path may contain `{model:path}`. The first path is the one in the documentation."""
    shown: Shown
    parse: Callable[[bytes, Mapping[bytes, bytes], str], CompletionRequest]
    """Parses the request. Arguments: body, headers, and the model in the path (empty: the body names the model). Raises
    BadRequest."""
    answer: Callable[[int], dict[str, Any]]
    asks_backend: bool = False
    """Whether a backend of this dialect can count the tokens for its own models."""


@dataclass(frozen=True, slots=True)
class VisibleModel:
    """A model that the caller's key may use."""

    name: str
    window_tokens: int | None
    """The context window in tokens. None if it is unknown, or if the name stands for several models."""
    capabilities: frozenset[str]


@dataclass(frozen=True, slots=True)
class View:
    """A route whose answer follows from the caller's models, such as a list of models."""

    method: str
    path: str
    shown: Shown
    answer: Callable[[Sequence[VisibleModel], dict[str, Any]], dict[str, Any]]
    """Computes the answer. Arguments: the models, and the JSON object in the request. Raises UnknownModel, BadRequest.
    """


def _nowhere(path: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Client:
    """All parts of a client dialect. The package of the dialect defines them as `CLIENT` in its module `client.py`."""

    dialect: ClientDialect
    """Reads stored answers. Also parses requests that come without a URL path, such as those of a recorded session."""
    paths: Mapping[str, ClientDialect] = field(default_factory=dict)
    conversation: ConversationDialect | None = None
    """The dialect of the paths, if its requests repeat the conversation."""
    at: Callable[[str], ClientDialect | None] = _nowhere
    """Finds the endpoint at a path that contains the name of a model."""
    shapes: Callable[[str], ClientDialect | None] = _nowhere
    """Finds the dialect in which errors are written, for any path of this vendor's API."""
    translation: Translation | None = None
    """Translates to chat. A client dialect with a translation can use every backend."""
    native: Translator | None = None
    """Translates to backends of the same dialect."""
    permissions: Mapping[str, PassThrough] = field(default_factory=dict)
    """Path → the permission that a policy must grant for this path."""
    shown: Mapping[str, Shown] = field(default_factory=dict)
    """Path → description of its operation in `/openapi.json`."""
    error_schema: Mapping[str, Any] = field(default_factory=dict)
    """Name of the vendor's error in `/openapi.json` → JSON schema of the error. Empty if another dialect describes the
    error."""
    counts: tuple[Count, ...] = ()
    views: tuple[View, ...] = ()
