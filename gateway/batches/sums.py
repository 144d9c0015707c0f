"""Sums the tokens of a batch, in OpenAI's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from gateway.batches.lines import numbered


def tokens(output: Path) -> dict[str, Any]:
    """OpenAI's BatchUsage: the token sums of all answers in the output file. Answers without usage count as 0. This
    blocks. Raises OSError."""
    read, cached, written, reasoned = 0, 0, 0, 0
    for _, line in numbered(output):
        usage = _object(orjson.loads(line)["response"]["body"].get("usage"))
        read += _count(usage, "input_tokens", "prompt_tokens")
        written += _count(usage, "output_tokens", "completion_tokens")
        cached += _count(_details(usage, "input_tokens_details", "prompt_tokens_details"), "cached_tokens")
        reasoned += _count(_details(usage, "output_tokens_details", "completion_tokens_details"), "reasoning_tokens")
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": reasoned},
        "total_tokens": read + written,
    }


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _details(usage: dict[str, Any], *names: str) -> dict[str, Any]:
    return next((found for name in names if (found := _object(usage.get(name)))), {})


def _count(usage: dict[str, Any], *names: str) -> int:
    """The value of the first field in `names` that is a whole number; 0 if there is none. Different APIs use different
    names for the same count."""
    return next((value for name in names if type(value := usage.get(name)) is int), 0)
