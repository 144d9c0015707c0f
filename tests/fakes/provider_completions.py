"""The scripted provider's legacy completions: text in, text out, several prompts at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from tests.fakes.provider_answer import Event, Spoken, claimed, echoed
from tests.fakes.provider_openai import CREATED, chat_usage, error, error_event

__all__ = ["error", "error_event", "events", "plain"]


def plain(spoken: Spoken) -> bytes:
    choices = [
        {
            "text": _echo(spoken, index) + "".join(tokens),
            "index": index,
            "logprobs": _logprobs(spoken, tokens),
            "finish_reason": spoken.finish,
        }
        for index, tokens in enumerate(_answers(spoken))
    ]
    body = _frame(spoken, choices=choices)
    usage = claimed(spoken.usage, spoken.reply)
    if usage is not None:
        body["usage"] = chat_usage(usage, spoken)
    return orjson.dumps(body)


def events(spoken: Spoken) -> Iterator[Event]:
    for index, tokens in enumerate(_answers(spoken)):
        padding = " " * spoken.reply.huge
        if echo := _echo(spoken, index):
            yield _chunk(spoken, index, echo, "")
        for token in tokens:
            yield _chunk(spoken, index, token + padding, token + padding)
            padding = ""
        yield _chunk(spoken, index, "", "", spoken.finish)
    usage = claimed(spoken.usage, spoken.reply)
    if spoken.include_usage and usage is not None:
        yield Event(_data(_frame(spoken, choices=[], usage=chat_usage(usage, spoken))))
    if spoken.reply.done:
        yield Event(b"data: [DONE]\n\n")


def _answers(spoken: Spoken) -> list[tuple[str, ...]]:
    """The tokens of every choice: those of the first prompt come first, and each prompt hears its own echo."""
    if len(spoken.prompts) < 2 or spoken.reply.text is not None or spoken.reply.tokens is not None:
        return [spoken.tokens] * spoken.parallel
    most = len(spoken.tokens) if spoken.finish == "length" else None
    each = spoken.parallel // len(spoken.prompts)
    return [echoed(prompt)[:most] for prompt in spoken.prompts for _ in range(each)]


def _echo(spoken: Spoken, index: int) -> str:
    if not spoken.body.get("echo") or not spoken.prompts:
        return ""
    return spoken.prompts[index * len(spoken.prompts) // spoken.parallel]


def _chunk(spoken: Spoken, index: int, text: str, told: str, finish: str | None = None) -> Event:
    logprobs = _logprobs(spoken, (text,)) if told else None
    choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}
    extra = {"usage": None} if spoken.include_usage else {}
    return Event(_data(_frame(spoken, choices=[choice], **extra)), told, 1 if told else 0, bool(told))


def _frame(spoken: Spoken, **more: Any) -> dict[str, Any]:
    return {
        "id": spoken.id.replace("chatcmpl-", "cmpl-"),
        "object": "text_completion",
        "created": CREATED,
        "model": spoken.model,
        "system_fingerprint": "fp_scripted",
        **more,
    }


def _logprobs(spoken: Spoken, tokens: tuple[str, ...]) -> dict[str, Any] | None:
    """`logprobs` is a number here: so many alternatives of each token, 0 for only the chosen one."""
    if type(spoken.body.get("logprobs")) is not int:
        return None
    offsets = [sum(map(len, tokens[:place])) for place in range(len(tokens))]
    return {
        "tokens": list(tokens),
        "token_logprobs": [spoken.reply.logprob] * len(tokens),
        "top_logprobs": [{token: spoken.reply.logprob} for token in tokens],
        "text_offset": offsets,
    }


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
