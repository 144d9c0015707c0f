"""Tokens of one attempt, in classes that do not overlap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Usage:
    """Disjoint token counts: `input_tokens` excludes cached tokens and cache writes, `output_tokens` excludes
    reasoning. Treat it as immutable; it is not frozen, because a frozen one costs four times as much to create, several
    times per request.

    Nobody changes one; it is not frozen because several are made for each request, at four times the cost if frozen.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    estimated: bool = False
    """Counted by the gateway because the backend did not say."""
    audio_input_tokens: int = 0
    image_input_tokens: int = 0
    image_tokens: int = 0
    """Of images that were made, as `audio_tokens` are of speech that was."""
    service_tier: str = ""
    """That served, as the provider reported it (`priority`, `flex`, `fast`, `us`; several joined by `+` in alphabetical
    order); empty for the standard tier."""
    fees: tuple[tuple[str, int], ...] = ()
    """Units that are charged beside tokens, with how many of each: `(("web_search", 5),)`."""
    doubt: str = ""
    """How the reported numbers contradict each other; empty where they do not."""
    all_input: int = field(init=False, repr=False, compare=False)
    all_output: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Computed once, since several packages read each sum."""
        written = self.cache_write_5m_tokens + self.cache_write_1h_tokens
        heard_and_seen = self.audio_input_tokens + self.image_input_tokens
        self.all_input = self.input_tokens + self.cached_tokens + written + heard_and_seen
        self.all_output = self.output_tokens + self.reasoning_tokens + self.audio_tokens + self.image_tokens

    @property
    def total(self) -> int:
        return self.all_input + self.all_output

    def doubted(self, *names: str) -> str:
        """`doubt` with these names too, each once, in alphabetical order."""
        return "+".join(sorted({*names, *self.doubt.split("+")} - {""}))


def interrupted(reported: Usage | None, input_tokens: int, delivered: int) -> Usage:
    """The usage of an attempt that ended early: what the backend reported until then, completed by estimates.

    `reported`: its latest report, None if there was none. `input_tokens`: the gateway's own count of what it sent.
    `delivered`: the gateway's estimate of the output that arrived; a higher number that was reported stands.
    """
    if reported is None:
        return Usage(input_tokens, output_tokens=delivered, estimated=True)
    missing = max(0, delivered - reported.all_output)
    return replace(
        reported,
        input_tokens=reported.input_tokens if reported.all_input else input_tokens,
        output_tokens=reported.output_tokens + missing,
        estimated=True,
    )


def with_unseen(usage: Usage, unseen: int, most: int | None, *, plain: bool) -> Usage:
    """`usage` of an attempt that ended early, with the `unseen` tokens that it is expected to have had.

    Of a `plain` answer these are all of it, of a stream what preceded its text. They never bring the output, with what
    was seen, above the `most` that the call could have.
    """
    seen = usage.all_output - (usage.output_tokens if plain else usage.reasoning_tokens)
    if most is not None:
        unseen = min(unseen, max(0, most - seen))
    if plain:
        return replace(usage, output_tokens=max(usage.output_tokens, unseen))
    return replace(usage, reasoning_tokens=max(usage.reasoning_tokens, unseen))
