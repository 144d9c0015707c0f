"""The common part of client dialects whose paths contain the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar
from urllib.parse import parse_qsl

from gateway.dialects.requests.fields import read_model
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import GatewayError


class PathEndpoint:
    """One path: a model and a method. Subclasses implement the rest of `ClientDialect`."""

    parse_body: ClassVar[Callable[..., CompletionRequest]]
    """The dialect's parser. `model` and `stream` are keyword arguments."""
    key_parameter: ClassVar[bytes] = b""
    """The parameter of the address in which clients may send the API key; empty: none."""

    def __init__(self, model: str, *, stream: bool) -> None:
        self._model, self._stream = model, stream

    def parse(
        self, body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], /
    ) -> CompletionRequest:
        """Parse a request. Raises BadRequest if the path does not name a valid model, or if the gateway cannot process
        the body."""
        model = read_model({"model": self._model})
        return self.parse_body(body, request_id, controls, headers, model=model, stream=self._stream)

    def key_in(self, query: bytes) -> bytes:
        """The API key in the query of an address; empty if there is none, or if clients may not send it there."""
        return dict(reversed(parse_qsl(query))).get(self.key_parameter, b"") if self.key_parameter else b""

    def status(self, error: GatewayError, /) -> int:
        return error.status
