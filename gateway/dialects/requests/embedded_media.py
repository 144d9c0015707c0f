"""Checks that all media of a chat body are embedded, for backends whose library would fetch URLs in the worker.

What a client names would be resolved and fetched next to the operator's own services, past every rule of the network.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.errors import BadRequest

_ADDRESS = re.compile(r"[\s\x00-\x1f]*(?:[a-z][a-z0-9+.-]*:[/\\]|[/\\]{2}|file:)", re.IGNORECASE)
_SAID = frozenset(
    {
        *("text", "content", "refusal", "reasoning_content", "reasoning", "thinking", "thinking_blocks", "signature"),
        *("tool_calls", "function_call", "annotations", "citations", "cache_control", "provider_specific_fields"),
        *("name", "filename", "title", "type", "role", "id", "tool_call_id", "detail", "format"),
    }
)
"""Fields that are read or only noted, whatever they hold; in lists of parts they are looked into."""


def check_embedded(messages: Any, backend: str) -> None:
    """Raises BadRequest that names the first place in `messages` that holds an address instead of data."""
    waiting: list[tuple[str, str, Any]] = [("messages", "", messages)]
    while waiting:
        where, name, value = waiting.pop()
        if type(value) is dict:
            waiting += [(f"{where}.{key}", key, each) for key, each in value.items() if _looked_into(key, each)]
        elif type(value) is list:
            waiting += [(f"{where}[{at}]", name, each) for at, each in enumerate(value)]
        elif type(value) is str and name and _is_address(name, value):
            raise BadRequest(
                f"{where} must be a data: URL: {backend} is reached through litellm, and addresses are not fetched "
                "for it. Send the bytes, or ask for another model.",
                param=where,
            )


def _looked_into(key: str, value: Any) -> bool:
    return key not in _SAID or (key == "content" and type(value) is list)


def _is_address(name: str, value: str) -> bool:
    if name == "content":  # a text among the parts
        return False
    if value.startswith("data:"):
        return ":" in value[5:]  # base64 has none
    return name.endswith(("url", "uri")) or _ADDRESS.match(value) is not None
