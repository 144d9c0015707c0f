"""Writes Anthropic's requests in the form that clouds accept: the model is in the path, and the API version is in the
body."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from gateway.dialects import json_splice
from gateway.dialects.base import Translator
from gateway.domain.request import CompletionRequest

BETAS = frozenset(
    {
        *("computer-use-2024-10-22", "computer-use-2025-01-24", "computer-use-2025-11-24"),
        *("token-efficient-tools-2025-02-19", "output-128k-2025-02-19", "dev-full-thinking-2025-05-14"),
        *("interleaved-thinking-2025-05-14", "context-1m-2025-08-07", "context-management-2025-06-27"),
        *("effort-2025-11-24", "tool-search-tool-2025-10-19", "tool-examples-2025-10-29"),
    }
)
"""Values of `anthropic-beta` that AWS and Google document for Claude. AWS and Google refuse requests with other values.
"""


def asked_betas(request: CompletionRequest, wire: Translator) -> list[str]:
    """The values of the client's `anthropic-beta` header that may be forwarded."""
    asked = request.headers.get(b"anthropic-beta", b"") if wire.client == wire.backend else b""
    return [each for part in asked.decode("latin-1").split(",") if (each := part.strip()) in BETAS]


def claude_body(body: bytes, version: str, *, streams_by_path: bool, betas: Sequence[str] = ()) -> bytes:
    """The `body` in the form that clouds require: without the model, and with the API `version`. `streams_by_path`:
    whether to remove `stream`, because the path states it. `betas`: beta names to add."""
    rest = json_splice.without(body, ("model", "stream") if streams_by_path else ("model",))[1:]
    given = b'"anthropic_beta":%b,' % orjson.dumps(betas) if betas and b'"anthropic_beta"' not in rest else b""
    return b'{"anthropic_version":%b,' % orjson.dumps(version) + given + rest
