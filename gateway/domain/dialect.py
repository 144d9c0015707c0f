"""A client dialect, as far as other packages treat its requests differently."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.domain.request import DialectName


@dataclass(frozen=True, slots=True)
class Dialect:
    """One in each package of `gateway/dialects` that clients speak; `gateway/dialects/facts.py` has them all."""

    name: DialectName
    operation: str = "chat"
    """OpenTelemetry's `gen_ai.operation.name`."""
    text_field: str = ""
    """The list or text whose last message is compared by the semantic cache; empty: such requests are never
    compared."""
    image_part: str = ""
    """Type of the content parts that are images, as its parser counts them."""
    system_field: str = ""
    """Where a system prompt stands that is no message."""
    limits_output: bool = True
    """Has it a field that limits an answer's tokens?"""
    repeatable: bool = False
    """May a request be sent twice, to compare answers? Nothing of it is kept at the provider."""
    answers_have_ids: bool = False
    """Later requests name an answer by its id: each caller needs one of its own, and what it names is looked up."""
    opaque: bool = False
    """Passed through: only the model's name and the usage are read, and answers may come in pieces unasked."""
    anthropic_limits: bool = False
    """Do answers also carry Anthropic's rate-limit headers?"""
