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
    """Reads one streamed answer: takes bytes from the backend and returns bytes for the client.

    Call `feed` with each piece until `ended` is true or the backend closes the connection. Then always call `eof`.
    A failure is raised only after everything before it was returned.
    """

    @property
    def usage(self) -> Usage | None:
        """The usage of the whole answer; None until it is reported."""
        ...

    @property
    def reported(self) -> Usage | None:
        """The usage that was reported so far, which may be partial. If the answer ends early, no other usage is
        available."""
        ...

    @property
    def finish(self) -> str: ...

    @property
    def ended(self) -> bool:
        """Whether the backend's terminating event was read. After this event, nothing more is sent to the client."""
        ...

    ending: bytes
    """The last bytes for the client. They are sent after the cost of the request has been booked. Empty if the backend
    sent no terminating event."""

    @property
    def chunks(self) -> int:
        """Number of events with a delta so far. This is about the number of tokens."""
        ...

    @property
    def silent(self) -> int:
        """Number of events in `chunks` without content, such as those with role or finish reason."""
        ...

    @property
    def confidence(self) -> float | None:
        """Mean token probability if the client asked for log-probabilities, else None."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Process `data`. Returns the bytes to send to the client now. Raises BackendGarbage if the data is not an
        event stream, and StreamBroken for an error event."""
        ...

    def eof(self) -> None:
        """Call this when the backend has closed the connection or `ended` is true. Raises StreamBroken if the answer is
        incomplete."""
        ...

    def cut(self, delivered: Usage) -> bytes | None:
        """End the answer here. Returns the events that say that its length limit was reached; the caller sends them
        last. None if the dialect has no such events.

        `delivered`: usage of the delivered part. After this call, further data is only counted.
        """
        ...

    def completion(self) -> bytes | None:
        """The whole answer as a plain JSON body in the client's dialect; None if the answer is incomplete or too
        large."""
        ...

    def delivered_text(self) -> str:
        """The text so far: content, reasoning, refusals, tool names and arguments. If the text is long, only its
        beginning."""
        ...

    def delivered_characters(self) -> int:
        """The number of characters of all text so far."""
        ...

    @property
    def most_characters(self) -> int:
        """An upper bound of `delivered_characters`, which needs less work."""
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
        """The request body for the backend. Raises BadRequest with a field that the dialect cannot express.

        `plan`: turns to remove or shorten. `logprobs`: whether to ask for log-probabilities; not for streams.
        `max_output_tokens`: the gateway's output limit.
        """
        ...

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        """The headers for the content type and the version of the dialect. The provider adds the credentials."""
        ...

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        """The client's headers that may be forwarded to the backend; never credentials."""
        ...

    def reader(self, request: CompletionRequest) -> StreamReader: ...

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        """Read the whole body of a 2xx answer. Raises BackendGarbage if the body is not an answer in the backend's
        dialect."""
        ...

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        """The error for the client after a backend's 4xx. If the body contains no readable error (for example
        HTML), a general sentence is used.
        """
        ...
