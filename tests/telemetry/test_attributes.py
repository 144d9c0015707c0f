"""What OpenTelemetry is told."""

from __future__ import annotations

import pytest

from gateway.domain.request import DialectName
from gateway.telemetry.attributes import operation


@pytest.mark.parametrize(
    ("dialect", "word"),
    [
        ("openai_chat", "chat"),
        ("anthropic_messages", "chat"),
        ("openai_responses", "chat"),
        ("openai_completions", "text_completion"),
        ("openai_embeddings", "embeddings"),
        ("openai_other", "openai_other"),
    ],
)
def test_the_operation_has_the_conventions_name(dialect: DialectName, word: str) -> None:
    assert operation(dialect) == word
