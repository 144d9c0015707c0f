"""What the scripted provider says: text, tokens and true usage of one answer, before any wire shape."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from gateway.domain.usage import Usage
from tests.fakes.provider_script import Reply

_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True)
class Event:
    """One server-sent event; `tokens` of the answer ride on it."""

    data: bytes
    text: str = ""
    tokens: int = 0
    content: bool = False


@dataclass(frozen=True)
class Spoken:
    """One answer, decided: both wires render this."""

    id: str
    model: str
    reply: Reply
    tokens: tuple[str, ...]
    reasoning: tuple[str, ...]
    call: tuple[str, str, str] | None
    """Id, name and JSON arguments of a tool call."""
    finish: str
    usage: Usage
    """The truth; what the wire claims may differ (`Reply.usage`)."""
    logprobs: bool = False
    include_usage: bool = False
    parallel: int = 1

    @property
    def text(self) -> str:
        return "".join(self.tokens)


def tokenize(text: str) -> tuple[str, ...]:
    """Words with the space before them: the fake's tokens, so that anyone can count them."""
    return tuple(_WORD.findall(text))


def last_user(body: dict[str, Any]) -> str:
    for message in reversed(body.get("messages") or []):
        if isinstance(message, dict) and message.get("role") == "user":
            return _text(message.get("content"))
    return ""


def speak(body: dict[str, Any], reply: Reply, number: int) -> Spoken:
    """The answer to `body` under `reply`; `number` makes its id unique."""
    echo = last_user(body)[:200]
    tokens = tokenize(f"You said: {echo}" if reply.text is None else reply.text)
    if reply.tokens is not None:
        tokens = tuple(f"t{n} " for n in range(reply.tokens))
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    finish = reply.finish
    if isinstance(most, int) and len(tokens) > most:
        tokens, finish = tokens[:most], "length"
    call = None
    if reply.tool:
        call = (f"call_{number}", reply.tool, '{"query": "' + re.sub(r'["\\\x00-\x1f]', " ", echo) + '"}')
        tokens, finish = (), "tool_calls"
    reasoning = tokenize(reply.reasoning)
    parallel = int(body.get("n") or 1)
    return Spoken(
        id=f"chatcmpl-{number}",
        model=str(body.get("model", "")),
        reply=reply,
        tokens=tokens,
        reasoning=reasoning,
        call=call,
        finish=finish,
        usage=_usage(body, reply, (len(tokens) + (len(tokenize(call[2])) if call else 0)) * parallel, len(reasoning)),
        logprobs=bool(body.get("logprobs")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        parallel=parallel,
    )


def claimed(usage: Usage, reply: Reply) -> Usage | None:
    """What the wire says about `usage`; None: nothing."""
    match reply.usage:
        case "absent":
            return None
        case "zero":
            return Usage()
        case "wrong":
            return replace(usage, input_tokens=usage.input_tokens * 10, output_tokens=usage.output_tokens * 10)
        case "negative":
            return replace(usage, input_tokens=-usage.input_tokens, output_tokens=-usage.output_tokens)
        case _:
            return usage


def _usage(body: dict[str, Any], reply: Reply, output: int, reasoning: int) -> Usage:
    asked = " ".join(
        _text(message.get("content")) for message in body.get("messages") or [] if isinstance(message, dict)
    )
    total = max(1, len(tokenize(_text(body.get("system")) + " " + asked)))
    cached = min(reply.cached_tokens, total)
    short = min(reply.cache_write_tokens, total - cached)
    long = min(reply.cache_write_1h_tokens, total - cached - short)
    return Usage(total - cached - short - long, cached, short, long, output, reasoning)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""
