"""Reads usage and text from a 2xx body that is incomplete or no answer."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.usage import any_usage
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.openai_chat import usage as chat_usage
from gateway.dialects.openai_responses import usage as responses_usage
from gateway.domain.money.usage import Usage
from gateway.domain.request import DialectName

_MOST_READ = 2**20
"""Bytes that are searched; of a longer body, its beginning and its end."""
_USAGE = b'"usage"'
_TIER = re.compile(rb'"service_tier"\s*:\s*"([\w-]{1,40})"')
_TEXT = re.compile(
    rb'"(?:content|text|reasoning_content|reasoning|thinking|refusal|arguments|input)"\s*:\s*'
    rb'"((?:[^"\\]|\\.)*+)',
    re.DOTALL,
)
"""A piece of what the model wrote; the last may lack its end."""
_ESCAPED = re.compile(rb"\\u[0-9a-fA-F]{0,4}|\\.", re.DOTALL)
_ERROR = re.compile(rb'\{\s*"(?:error|detail|errors|message)"|\{[^{]{0,200}"(?:object|type)"\s*:\s*"error"')


def reported_in(body: bytes, dialect: DialectName) -> Usage | None:
    """The usage that `body` reports in a backend's dialect, whole or cut anywhere; None: none."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = _found(body)
    if type(said) is not dict:
        return None
    match dialect:
        case "anthropic_messages":
            return messages_usage(said.get("usage"))
        case "openai_responses":
            return responses_usage.reported(said)
        case "openai_chat" | "openai_completions":
            return chat_usage.reported(said)
    return any_usage(said.get("usage"))


def _found(body: bytes) -> dict[str, Any]:
    """What can be read in JSON that is not whole."""
    found: dict[str, Any] = {}
    if tiers := _TIER.findall(body[:_MOST_READ]):
        found["service_tier"] = tiers[0].decode()
    at = body.rfind(_USAGE)
    while at >= 0 and "usage" not in found:
        try:
            start = body.index(b"{", at, at + len(_USAGE) + 8)
            found["usage"] = orjson.loads(body[start : json_splice.value_end(body, start)])
        except (ValueError, IndexError):
            at = body.rfind(_USAGE, 0, at)
    return found


def is_cut(body: bytes) -> bool:
    """Is it the beginning of an answer in JSON, as far as its own beginning tells? An error is none."""
    if not body.lstrip().startswith(b"{") or _ERROR.match(body.lstrip()):
        return False
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return True
    return False


def characters_in(body: bytes) -> int:
    """How much text of the model's is in a body that is cut anywhere."""
    read = body[:_MOST_READ]
    texts = [_ESCAPED.sub(b"x", text) for text in _TEXT.findall(read)]
    found = sum(len(text.decode(errors="ignore")) for text in texts)
    return found * len(body) // len(read) if read else 0
