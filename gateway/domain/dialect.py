"""The facts of a client dialect that other packages need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.domain.request import DialectName


@dataclass(frozen=True, slots=True)
class Dialect:
    """Facts about one client dialect. Each dialect's package in `gateway/dialects` defines one;
    `gateway/dialects/facts.py` lists all."""

    name: DialectName
    operation: str = "chat"
    """OpenTelemetry's `gen_ai.operation.name`."""
    text_field: str = ""
    """The field (a list or a text) whose last message the semantic cache compares; empty: requests are not compared."""
    image_part: str = ""
    """The type of content parts that are images, as its parser counts them."""
    system_field: str = ""
    """The field of a system prompt that is not a message."""
    limits_output: bool = True
    """Whether a field of the request limits the tokens of an answer."""
    repeatable: bool = False
    """Whether a request may be sent twice to compare answers. It may if the provider stores nothing of it."""
    answers_have_ids: bool = False
    """Whether later requests refer to an answer by its id. Then each caller needs a separate id, and answers are looked
    up by id."""
    opaque: bool = False
    """Whether requests are passed through: only model name and usage are read, and answers may be streamed unasked."""
    stream_type: str = "text/event-stream; charset=utf-8"
    """Media type of a stream of events. Answers of an opaque dialect may have others."""
    key_headers: tuple[bytes, ...] = ()
    """Headers beside `authorization` in which its SDKs send the key; in lower case."""
    key_in: Callable[[bytes], bytes] | None = None
    """Reads the key from an `authorization` header that is not a bearer token; returns an empty value if there is
    none."""
    anthropic_limits: bool = False
    """Whether answers also have Anthropic's rate-limit headers."""
