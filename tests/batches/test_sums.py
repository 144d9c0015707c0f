from __future__ import annotations

from pathlib import Path

from openai.types.batch_usage import BatchUsage

from gateway.batches.forms import FORMS
from gateway.batches.sums import tokens
from tests.batches.conftest import URL

CHAT = b"""{"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}}"""
RESPONSE = b"""{"usage": {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150,
"input_tokens_details": {"cached_tokens": 40}, "output_tokens_details": {"reasoning_tokens": 20}}}"""
VECTORS = b'{"usage": {"prompt_tokens": 1000, "total_tokens": 1000}}'
SILENT = b'{"usage": null}'


def test_the_usage_of_every_dialect_is_summed(tmp_path: Path) -> None:
    path = tmp_path / "output"
    bodies = [CHAT, RESPONSE, VECTORS, SILENT, b"{}"]
    path.write_bytes(b"".join(FORMS[URL].answered("a", 200, "req_1", body) for body in bodies))
    found = BatchUsage.model_validate(tokens(path), strict=True)
    assert (found.input_tokens, found.output_tokens, found.total_tokens) == (1110, 55, 1165)
    assert (found.input_tokens_details.cached_tokens, found.output_tokens_details.reasoning_tokens) == (44, 22)
