"""Interface of a translator between a client's dialect and a backend's dialect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gateway.dialects.answers.plain import Plain
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest, DialectName
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BackendRefused

__all__ = ["Plain", "StreamReader", "Translator"]


class StreamReader(Protocol):
    """Reads one streamed answer: takes the backend's bytes and returns the client's bytes.

    Call `feed` with each piece and send its result to the client, until `ended` is true or the backend closes the
    connection. Then always call `eof`. A failure of the backend is raised after everything that came before it has been
    returned.
    """

    @property
    def usage(self) -> Usage | None:
        """The usage of the whole answer; None before it is reported."""
        ...

    @property
    def reported(self) -> Usage | None:
        """The usage reported so far, which may be partial. For an answer that ends early, it is the only usage."""
        ...

    @property
    def finish(self) -> str: ...

    @property
    def ended(self) -> bool:
        """Whether the backend's terminating event was read. Nothing more is sent after it."""
        ...

    ending: bytes
    """The last bytes, which are sent after the money is settled; empty if the backend sent no terminating event."""

    @property
    def chunks(self) -> int:
        """Number of events with a delta so far, which is about one per token."""
        ...

    @property
    def silent(self) -> int:
        """Number of `chunks` that are known to have no content, such as role and finish reason."""
        ...

    @property
    def confidence(self) -> float | None:
        """Mean token probability if the client asked for log-probabilities, else None."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Process data and return the bytes to send now. Raises BackendGarbage if the data is not an event stream,
        StreamBroken for an error event."""
        ...

    def eof(self) -> None:
        """Called when the backend has closed the connection or `ended` is true. Raises StreamBroken if the answer is
        incomplete."""
        ...

    def cut(self, delivered: Usage) -> bytes | None:
        """The events that end the answer here with its length limit, to be sent after all others. Data fed later is
        only counted. None if this kind of answer has no such end."""
        ...

    def completion(self) -> bytes | None:
        """The whole answer as the client dialect's plain JSON body; None if it is incomplete or too large."""
        ...

    def delivered_text(self) -> str:
        """Content, reasoning, refusals, tool names and arguments so far. For a long text, only the beginning."""
        ...

    def delivered_characters(self) -> int:
        """Number of characters of all text so far."""
        ...


class Translator(Protocol):
    """Translates between a client's dialect and a backend's dialect."""

    client: DialectName
    backend: DialectName

    def body(
        self,
        request: CompletionRequest,
        model: str,
        plan: ContextPlan | None,
        *,
        logprobs: bool = False,
        max_output_tokens: int | None = None,
    ) -> bytes:
        """The request body for the backend. `logprobs` (plain requests only) and `max_output_tokens` are added by
        the gateway.

        Raises BadRequest, with the field's name, if the backend's dialect cannot express the request.
        """
        ...

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        """Content type and dialect version. The provider adds its credentials."""
        ...

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        """The client's headers that may be forwarded to the backend; never credentials."""
        ...

    def reader(self, request: CompletionRequest) -> StreamReader: ...

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        """Read a whole 2xx body. Raises BackendGarbage if it is not an answer in the backend's dialect."""
        ...

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        """The client's error for a 4xx. A body without a readable error, such as HTML, is replaced by one sentence."""
        ...
