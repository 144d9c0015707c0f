"""What the scripted provider says: text, tokens and true usage of one answer, before any wire shape."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from gateway.domain.money.usage import Usage
from tests.fakes.provider_script import Reply

_WORD = re.compile(r"\s*\S+")
_PIECE = re.compile(r"\s*\S+|\s+$")


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
    prompts: tuple[str, ...] = ()
    """Of a legacy completion, which may ask several at once; then the answers are `parallel` in all."""
    body: dict[str, Any] = field(default_factory=dict)
    """The request, for wires that repeat some of it in their answers."""

    @property
    def text(self) -> str:
        return "".join(self.tokens)


def tokenize(text: str) -> tuple[str, ...]:
    """Words with the space before them: the fake's tokens, so that anyone can count them."""
    return tuple(_WORD.findall(text))


def pieces(text: str) -> tuple[str, ...]:
    """The same with what may come after the last word."""
    return tuple(_PIECE.findall(text))


def last_user(body: dict[str, Any]) -> str:
    """What was asked last, wherever the vendor's request has it: `messages`, `input` or `prompt`."""
    for message in reversed(_messages(body)):
        if message.get("role") == "user":
            return _text(message.get("content"))
    prompts = prompts_of(body)
    return prompts[-1] if prompts else ""


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body.get("messages") or body.get("input") or []
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [message for message in given if isinstance(message, dict)]


def prompts_of(body: dict[str, Any]) -> tuple[str, ...]:
    """The prompts of a legacy completion; tokens are written as their numbers."""
    prompt = body.get("prompt") or ""
    if isinstance(prompt, str):
        return (prompt,) if prompt else ()
    if all(isinstance(token, int) for token in prompt):
        return (" ".join(map(str, prompt)),)
    return tuple(one if isinstance(one, str) else " ".join(map(str, one)) for one in prompt)


def speak(body: dict[str, Any], reply: Reply, number: int) -> Spoken:
    """The answer to `body` under `reply`; `number` makes its id unique."""
    echo = last_user(body)
    tokens = echoed(echo) if reply.text is None else tokenize(reply.text)
    if reply.tokens is not None:
        tokens = tuple(f"t{n} " for n in range(reply.tokens))
    most = body.get("max_completion_tokens") or body.get("max_output_tokens") or body.get("max_tokens")
    finish = reply.finish
    if isinstance(most, int) and len(tokens) > most:
        tokens, finish = tokens[:most], "length"
    call = None
    if reply.tool:
        call = (f"call_{number}", reply.tool, '{"query": "' + re.sub(r'["\\\x00-\x1f]', " ", echo[:200]) + '"}')
        tokens, finish = (), "tool_calls"
    if reply.blocks or reply.message:
        tokens = tokenize(_text(list(reply.blocks)) or reply.message.get("content") or "")
        calls = reply.message.get("tool_calls") or any(block["type"] == "tool_use" for block in reply.blocks)
        finish = "tool_calls" if calls and finish == "stop" else finish
    reasoning = tokenize(reply.reasoning)
    prompts = prompts_of(body)
    parallel = int(body.get("n") or 1) * max(1, len(prompts))
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
        prompts=prompts,
        body=body,
    )


def echoed(prompt: str) -> tuple[str, ...]:
    """The tokens of an answer that nothing else was scripted for."""
    return tokenize(f"You said: {prompt[:200]}")


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
    asked = [_text(message.get("content") or message.get("output")) for message in _messages(body)]
    total = max(
        1, len(tokenize(" ".join((_text(body.get("system") or body.get("instructions")), *asked, *prompts_of(body)))))
    )
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
