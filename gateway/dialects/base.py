"""Interface of a translator: carries a client's dialect over a backend's dialect."""

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
    """One streamed answer: upstream bytes in, client bytes out.

    Feed what arrives and relay what comes back until `ended` or the upstream closes; then always call `eof()`.
    An upstream failure is raised once everything before it was handed out.
    """

    @property
    def usage(self) -> Usage | None:
        """Of the whole answer."""
        ...

    @property
    def reported(self) -> Usage | None:
        """What the backend has reported so far, be it partial: of an answer that ends early, there is nothing else."""
        ...

    @property
    def finish(self) -> str: ...

    @property
    def ended(self) -> bool:
        """The backend's terminating event was read; nothing more is relayed."""
        ...

    ending: bytes
    """What to send last, once the money is settled; empty when the backend never sent a terminating event."""

    @property
    def chunks(self) -> int:
        """Events with a delta so far, about one token each."""
        ...

    @property
    def silent(self) -> int:
        """Of these, those known to carry no content: who speaks, why it ended."""
        ...

    @property
    def confidence(self) -> float | None:
        """Mean token probability if the client asked for log-probabilities, else None."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Bytes to relay now. Raises BackendGarbage when it is no event stream, StreamBroken on an error event."""
        ...

    def eof(self) -> None:
        """The upstream closed, or `ended`. Raises StreamBroken if the answer is not whole."""
        ...

    def cut(self, delivered: Usage) -> bytes | None:
        """What the client has to hear, after what was relayed, for an answer that ends here because it has reached its
        length; None when this kind of answer has no such end. What is fed from then on is only counted.
        """
        ...

    def completion(self) -> bytes | None:
        """The whole answer as the client dialect's plain JSON body; None if it is not whole, or too large to keep."""
        ...

    def delivered_text(self) -> str:
        """Content, reasoning, refusals, tool names and arguments received so far; of a long one the beginning."""
        ...

    def delivered_characters(self) -> int:
        """Of all the text received so far."""
        ...


class Translator(Protocol):
    """A client's dialect over a backend's."""

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
        """What to send. `logprobs` (plain requests only) and `max_output_tokens` are added on the gateway's behalf.

        Raises BadRequest naming the field when the request cannot be said in the backend's dialect.
        """
        ...

    def headers(self, request: CompletionRequest) -> list[tuple[bytes, bytes]]:
        """Content type and dialect version. The provider adds its credentials."""
        ...

    def forwarded(self, request: CompletionRequest) -> Iterable[tuple[bytes, bytes]]:
        """The client's headers that the backend may see; never its credentials."""
        ...

    def reader(self, request: CompletionRequest) -> StreamReader: ...

    def plain(self, request: CompletionRequest, body: bytes) -> Plain:
        """Read a whole 2xx body. Raises BackendGarbage when it is not an answer in the backend's dialect."""
        ...

    def refusal(self, status: int, body: bytes, backend: str) -> BackendRefused:
        """A 4xx as the client should see it; a page of HTML or other garbage becomes one sentence."""
        ...
