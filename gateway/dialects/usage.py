"""Reading an OpenAI `usage` object into token classes that do not overlap."""

from __future__ import annotations

from gateway.domain.usage import Usage

ABSURD_TOKENS = 100_000_000
"""No window is that large; who says more is not to be believed."""


def token_count(value: object) -> int | None:
    """A believable number of tokens; None for anything else, 0 for an absent one."""
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value < ABSURD_TOKENS:
        return None
    return value


def openai_usage(value: object) -> Usage | None:
    """None when absent or garbage (negative, absurd, parts larger than the whole, all zero).

    Reasoning counts as a part of the completion, unless `total_tokens` shows that the backend counts it beside.
    """
    if type(value) is not dict:
        return None
    prompt, completion = token_count(value.get("prompt_tokens")), token_count(value.get("completion_tokens"))
    if prompt is None or completion is None or prompt + completion == 0:
        return None
    cached = _detail(value, "prompt_tokens_details", "cached_tokens")
    reasoning = _detail(value, "completion_tokens_details", "reasoning_tokens")
    audio = _detail(value, "completion_tokens_details", "audio_tokens")
    if cached is None or reasoning is None or audio is None or cached > prompt:
        return None
    beside = reasoning > 0 and value.get("total_tokens") == prompt + completion + reasoning
    output = completion - audio - (0 if beside else reasoning)
    if output < 0:
        return None
    return Usage(
        input_tokens=prompt - cached,
        cached_tokens=cached,
        output_tokens=output,
        reasoning_tokens=reasoning,
        audio_tokens=audio,
    )


def _detail(usage: dict[str, object], group: str, name: str) -> int | None:
    details = usage.get(group)
    return token_count(details.get(name)) if type(details) is dict else 0
