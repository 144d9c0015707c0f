"""Tokens of one attempt, in classes that do not overlap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Usage:
    """Disjoint token counts: `input_tokens` excludes cached tokens and cache writes, `output_tokens` excludes
    reasoning.

    Treat it as immutable. It is not frozen, because creating a frozen one takes four times as long, several times per
    request.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    estimated: bool = False
    """Counted by the gateway, because the backend reported nothing."""
    audio_input_tokens: int = 0
    image_input_tokens: int = 0
    image_tokens: int = 0
    """Tokens of generated images, as `audio_tokens` are of generated speech."""
    service_tier: str = ""
    """The tier that served, as the provider reported it (`priority`, `flex`, `fast`, `us`; several joined by `+` in
    alphabetical order); empty for the standard tier."""
    fees: tuple[tuple[str, int], ...] = ()
    """Units that are charged in addition to tokens, and their counts: `(("web_search", 5),)`."""
    doubt: str = ""
    """How the reported numbers contradict each other; empty if they do not."""
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
        """`doubt` with these names added, each once, in alphabetical order."""
        return "+".join(sorted({*names, *self.doubt.split("+")} - {""}))


def interrupted(reported: Usage | None, input_tokens: int, delivered: int) -> Usage:
    """The usage of an attempt that ended early: what the backend had reported, completed by estimates.

    `reported`: its latest report; None without one. `input_tokens`: the gateway's own count of what it sent.
    `delivered`: the gateway's estimate of the output that arrived; a higher reported number wins.
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
    """`usage` of an attempt that ended early, plus the `unseen` tokens that it is expected to have generated.

    For a `plain` answer, `unseen` is the whole output; for a stream, the output before its text. The sum with the
    delivered output never exceeds `most`, the most that the call could produce.
    """
    seen = usage.all_output - (usage.output_tokens if plain else usage.reasoning_tokens)
    if most is not None:
        unseen = min(unseen, max(0, most - seen))
    if plain:
        return replace(usage, output_tokens=max(usage.output_tokens, unseen))
    return replace(usage, reasoning_tokens=max(usage.reasoning_tokens, unseen))
