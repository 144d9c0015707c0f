"""Reads usage and text from a 2xx body that is incomplete or not an answer."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.dialects.answers.usage import any_usage
from gateway.dialects.anthropic_messages.usage import messages_usage
from gateway.dialects.openai_chat import usage as chat_usage
from gateway.dialects.openai_responses import usage as responses_usage
from gateway.dialects.translate.chat_to_converse import reply as converse_reply
from gateway.dialects.translate.chat_to_gemini import reply as gemini_reply
from gateway.dialects.translate.chat_to_ollama import reply as ollama_reply
from gateway.domain.money.usage import Usage
from gateway.domain.request import DialectName

_MOST_READ = 2**20
"""Maximum bytes that are searched."""
_USAGE = b'"usage"'
_TIER = re.compile(rb'"service_tier"\s*:\s*"([\w-]{1,40})"')
_TEXT = re.compile(
    rb'"(?:content|text|reasoning_content|reasoning|thinking|refusal|arguments|input)"\s*:\s*'
    rb'"((?:[^"\\]|\\.)*+)',
    re.DOTALL,
)
"""Matches text that the model generated. The text of the last match may be cut off."""
_ESCAPED = re.compile(rb"\\u[0-9a-fA-F]{0,4}|\\.", re.DOTALL)
_ERROR = re.compile(rb'\{\s*"(?:error|detail|errors|message)"|\{[^{]{0,200}"(?:object|type)"\s*:\s*"error"')


def reported_in(body: bytes, dialect: DialectName) -> Usage | None:
    """The usage that `body` reports, in the form of a backend's dialect. None if `body` reports no usage. `body` may be
    cut off."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = _found(body)
    if type(parsed) is not dict:
        return None
    match dialect:
        case "anthropic_messages":
            return messages_usage(parsed.get("usage"))
        case "bedrock_converse":
            return messages_usage(converse_reply.usage(parsed.get("usage")))
        case "gemini_generate":
            return gemini_reply.usage(parsed.get("usageMetadata"))
        case "ollama_chat":
            return ollama_reply.usage(parsed)
        case "openai_responses":
            return responses_usage.reported(parsed)
        case "openai_chat" | "openai_completions":
            return chat_usage.reported(parsed)
    return any_usage(parsed.get("usage"))


def _found(body: bytes) -> dict[str, Any]:
    """The usage and service tier found in incomplete JSON."""
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
    """Whether `body` is the beginning of a JSON answer that was cut off. Error objects do not count."""
    if not body.lstrip().startswith(b"{") or _ERROR.match(body.lstrip()):
        return False
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return True
    return False


def characters_in(body: bytes) -> int:
    """The estimated number of characters that the model generated. `body` may be cut off anywhere."""
    read = body[:_MOST_READ]
    texts = [_ESCAPED.sub(b"x", text) for text in _TEXT.findall(read)]
    found = sum(len(text.decode(errors="ignore")) for text in texts)
    return found * len(body) // len(read) if read else 0
