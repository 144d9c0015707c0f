"""Reading an OpenAI `usage` object into token classes that do not overlap."""

from __future__ import annotations

from gateway.domain.usage import Usage

ABSURD_TOKENS = 100_000_000
"""No window is that large; who says more is not to be believed."""


def token_count(value: object) -> int:
    """A number of tokens, 0 for an absent one. Raises ValueError for what nobody can believe."""
    if type(value) is int and 0 <= value < ABSURD_TOKENS:
        return value
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value < ABSURD_TOKENS:
        raise ValueError("not a number of tokens")
    return value


def detail(usage: dict[str, object], group: str, name: str) -> int:
    """A count inside a group such as `prompt_tokens_details`. Raises ValueError too."""
    details = usage.get(group)
    return token_count(details.get(name)) if type(details) is dict else 0


def openai_usage(value: object) -> Usage | None:
    """None when absent or garbage (negative, absurd, parts larger than the whole, an empty prompt)."""
    if type(value) is not dict:
        return None
    try:
        prompt, completion = token_count(value.get("prompt_tokens")), token_count(value.get("completion_tokens"))
        read, wrote = value.get("prompt_tokens_details"), value.get("completion_tokens_details")
        if read is None and wrote is None:
            return Usage(prompt, output_tokens=completion) if prompt else None
        return _divided(prompt, completion, read, wrote, value.get("total_tokens"))
    except ValueError:
        return None


def _divided(prompt: int, completion: int, read: object, wrote: object, total: object) -> Usage | None:
    """Cache reads and writes are parts of the prompt, reasoning of the completion.

    Except where the numbers show that a backend counts reasoning or writes beside.
    """
    cached = written = reasoning = audio = heard = shown = drawn = 0
    if type(read) is dict:
        cached, written = token_count(read.get("cached_tokens")), token_count(read.get("cache_write_tokens"))
        heard, shown = token_count(read.get("audio_tokens")), token_count(read.get("image_tokens"))
    if type(wrote) is dict:
        reasoning, audio = token_count(wrote.get("reasoning_tokens")), token_count(wrote.get("audio_tokens"))
        drawn = token_count(wrote.get("image_tokens"))
    beside = reasoning > 0 and total == prompt + completion + reasoning
    output = completion - audio - drawn - (0 if beside else reasoning)
    if prompt == 0 or cached > prompt or output < 0:
        return None
    fresh = prompt - cached
    if heard or shown:
        if heard + shown > fresh:  # some of it was cached, and nobody says how much
            heard = shown = 0
        fresh -= heard + shown
    return Usage(
        input_tokens=fresh - written if written <= fresh else fresh,
        cached_tokens=cached,
        cache_write_5m_tokens=written,
        output_tokens=output,
        reasoning_tokens=reasoning,
        audio_tokens=audio,
        audio_input_tokens=heard,
        image_input_tokens=shown,
        image_tokens=drawn,
    )


def any_usage(value: object) -> Usage | None:
    """The same from an endpoint that counts as chat does, as responses do, or only in total, which is input then."""
    if type(value) is not dict or "prompt_tokens" in value:
        return openai_usage(value)
    return openai_usage(
        {
            "prompt_tokens": value.get("input_tokens", value.get("total_tokens")),
            "completion_tokens": value.get("output_tokens"),
            "total_tokens": value.get("total_tokens"),
            "prompt_tokens_details": value.get("input_tokens_details"),
            "completion_tokens_details": value.get("output_tokens_details"),
        }
    )
