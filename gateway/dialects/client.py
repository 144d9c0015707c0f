"""Interface of a client dialect, and the entry with which its package registers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.dialects.base import Translator
from gateway.dialects.via_chat import Translation
from gateway.domain.policy import PassThrough
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import GatewayError


class ClientDialect(Protocol):
    """The functions of a client dialect."""

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
        """The last event of a stream that failed; no terminating event follows. `sent`: the events sent just before."""
        ...

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        """The answers in a stored plain body, as chat choices."""
        ...

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """Convert a plain `body` to a stream. Returns all events but the terminating one, and the terminating one."""
        ...


@dataclass(frozen=True, slots=True)
class Shown:
    """An operation in `/openapi.json`."""

    id: str
    summary: str
    body: Mapping[str, Any]
    """JSON schema of the request's body; empty: it has none."""


@dataclass(frozen=True, slots=True)
class Count:
    """A route that counts the tokens of a prompt."""

    paths: tuple[str, ...]
    """May have `{model:path}`. The first one is documented."""
    shown: Shown
    parse: Callable[[bytes, Mapping[bytes, bytes], str], CompletionRequest]
    """From body, headers and the model in the path (empty: the body names it). Raises BadRequest."""
    answer: Callable[[int], dict[str, Any]]
    asks_backend: bool = False
    """Whether a backend of this dialect counts for its own models."""


@dataclass(frozen=True, slots=True)
class VisibleModel:
    """A model that the caller's key may use."""

    name: str
    window_tokens: int | None
    """None: unknown, or the name stands for several models."""
    capabilities: frozenset[str]


@dataclass(frozen=True, slots=True)
class View:
    """A route whose answer follows from the models that the key may use."""

    method: str
    path: str
    shown: Shown
    answer: Callable[[Sequence[VisibleModel], dict[str, Any]], dict[str, Any]]
    """From the models and the request's JSON object. Raises UnknownModel, BadRequest."""


def _nowhere(path: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Client:
    """A client dialect. The module `client.py` of its package defines it as `CLIENT`."""

    dialect: ClientDialect
    """Reads stored answers and requests without a path."""
    paths: Mapping[str, ClientDialect] = field(default_factory=dict)
    at: Callable[[str], ClientDialect | None] = _nowhere
    """Finds the endpoint at a path that is not fixed, because it names a model."""
    shapes: Callable[[str], ClientDialect | None] = _nowhere
    """Finds the dialect of an error at any path of this vendor's API."""
    translation: Translation | None = None
    """To chat; with it, the client reaches every backend."""
    native: Translator | None = None
    """To backends of the same dialect."""
    permissions: Mapping[str, PassThrough] = field(default_factory=dict)
    """Path → permission that a policy must grant for it."""
    shown: Mapping[str, Shown] = field(default_factory=dict)
    """Path → its operation in `/openapi.json`."""
    error_schema: Mapping[str, Any] = field(default_factory=dict)
    """Name of the vendor's error in `/openapi.json` → its JSON schema; empty: described with another dialect."""
    counts: tuple[Count, ...] = ()
    views: tuple[View, ...] = ()
