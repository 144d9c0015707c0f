"""Checks that the media in a chat body are data and not URLs. Needed for backends whose library would download URLs in
the worker process.

Such a download would run inside the operator's network and could reach internal services.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.errors import BadRequest

_ADDRESS = re.compile(r"[\s\x00-\x1f]*(?:[a-z][a-z0-9+.-]*:[/\\]|[/\\]{2}|file:)", re.IGNORECASE)
_HARMLESS = frozenset(
    {
        *("text", "content", "refusal", "reasoning_content", "reasoning", "thinking", "thinking_blocks", "signature"),
        *("tool_calls", "function_call", "annotations", "citations", "cache_control", "provider_specific_fields"),
        *("name", "filename", "title", "type", "role", "id", "tool_call_id", "detail", "format"),
    }
)
"""Names of fields in which a URL is never downloaded. Lists of content parts inside these fields are still checked."""


def check_embedded(messages: Any, backend: str) -> None:
    """Raise BadRequest if `messages` contain a URL where they should contain the media's data. The error names the
    first URL's place and the `backend`."""
    waiting: list[tuple[str, str, Any]] = [("messages", "", messages)]
    while waiting:
        where, name, value = waiting.pop()
        if type(value) is dict:
            waiting += [(f"{where}.{key}", key, each) for key, each in value.items() if _must_check(key, each)]
        elif type(value) is list:
            waiting += [(f"{where}[{at}]", name, each) for at, each in enumerate(value)]
        elif type(value) is str and name and _is_address(name, value):
            raise BadRequest(
                f"{where} must be a data: URL: {backend} is reached through litellm, and addresses are not fetched "
                "for it. Send the bytes, or ask for another model.",
                param=where,
            )


def _must_check(key: str, value: Any) -> bool:
    return key not in _HARMLESS or (key == "content" and type(value) is list)


def _is_address(name: str, value: str) -> bool:
    if name == "content":  # here `content` is the text of a content part
        return False
    if value.startswith("data:"):
        return ":" in value[5:]  # base64 contains no colon
    return name.endswith(("url", "uri")) or _ADDRESS.match(value) is not None
