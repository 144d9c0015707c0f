"""Facts about a client dialect that other packages need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.request import DialectName


@dataclass(frozen=True, slots=True)
class Dialect:
    """Facts about one client dialect. Each dialect's package in `gateway/dialects` defines one instance, and
    `gateway/dialects/facts.py` lists all of them."""

    name: DialectName
    operation: str = "chat"
    """Value of OpenTelemetry's attribute `gen_ai.operation.name`."""
    text_field: str = ""
    """The field (a list or a text) whose last message the semantic cache compares. Empty if requests in this dialect
    are not compared."""
    image_part: str = ""
    """The type of content parts that the dialect's parser counts as images."""
    system_field: str = ""
    """The field that contains a system prompt, if the system prompt is not a message."""
    limits_output: bool = True
    """Whether the request has a field that limits the tokens of an answer."""
    repeatable: bool = False
    """Whether a request may be sent twice to compare answers. It may if the provider stores nothing of the request."""
    answers_have_ids: bool = False
    """Whether later requests refer to an answer by its id. Then each caller needs an id of its own, and answers are
    found by id."""
    numbers_events: bool = False
    """Whether each event of a stream has a number, so that an error event must continue the numbers of the last piece.
    """
    opaque: bool = False
    """Whether requests are passed through. Then the gateway reads only model name and usage, and an answer may be a
    stream even if the client did not ask for a stream."""
    stream_type: str = "text/event-stream; charset=utf-8"
    """Media type of a stream of events. Answers of an opaque dialect may have other media types."""
    key_headers: tuple[bytes, ...] = ()
    """Headers, besides `authorization`, in which SDKs of this dialect send the API key. In lower case."""
    key_in: Callable[[bytes], bytes] | None = None
    """Reads the API key from the value of an `authorization` header that is no bearer token. Returns an empty value if
    the header has no key."""
    anthropic_limits: bool = False
    """Whether answers also have Anthropic's rate-limit headers."""
