"""The numbers of tokens of one attempt, in token classes that do not overlap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Usage:
    """The numbers of tokens of one attempt. Each token counts in only one class: `input_tokens` excludes cached tokens
    and cache writes, and `output_tokens` excludes reasoning. Treat an instance as immutable."""

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    audio_tokens: int = 0
    estimated: bool = False
    """Whether the gateway counted the tokens, because the backend reported nothing."""
    audio_input_tokens: int = 0
    image_input_tokens: int = 0
    image_tokens: int = 0
    """Tokens of generated images. `audio_tokens` are the tokens of generated speech."""
    service_tier: str = ""
    """The service tier that served the call, as the provider reported it: `priority`, `flex`, `fast`, `us`. Several
    tiers are joined by `+` in alphabetical order. Empty for the standard tier."""
    fees: tuple[tuple[str, int], ...] = ()
    """(Unit, count) of each charge in addition to tokens: `(("web_search", 5),)`."""
    doubt: str = ""
    """Names of the reported numbers that contradict each other; empty if there is no contradiction."""
    billed_pico: int | None = None
    """The cost of the call in pico-dollars that the usage object states. It is booked only for kinds of backends whose
    statement is the provider's bill (`KindFacts.bills_in_usage`). None if it is not stated."""
    all_input: int = field(init=False, repr=False, compare=False)
    all_output: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the sums once, because several packages read them."""
        written = self.cache_write_5m_tokens + self.cache_write_1h_tokens
        heard_and_seen = self.audio_input_tokens + self.image_input_tokens
        self.all_input = self.input_tokens + self.cached_tokens + written + heard_and_seen
        self.all_output = self.output_tokens + self.reasoning_tokens + self.audio_tokens + self.image_tokens

    @property
    def is_plain(self) -> bool:
        """Whether the backend counted only input, cached input and output at the standard tier, without contradiction.
        Only for token counts that are not negative."""
        return (
            self.all_input == self.input_tokens + self.cached_tokens
            and self.all_output == self.output_tokens
            and not (self.estimated or self.service_tier or self.doubt)
        )

    @property
    def total(self) -> int:
        return self.all_input + self.all_output

    def doubted(self, *names: str) -> str:
        """Return the field `doubt` (names of reported numbers that contradict each other) with `names` added. The
        result contains each name once, in alphabetical order, separated by `+`."""
        return "+".join(sorted({*names, *self.doubt.split("+")} - {""}))


def interrupted(reported: Usage | None, input_tokens: int, delivered: int) -> Usage:
    """The usage of an attempt that ended early. `reported`: the backend's latest report, or None. `input_tokens`: the
    gateway's own count. `delivered`: the gateway's estimate of the output, which is used if it is higher than the
    reported output."""
    if reported is None:
        return Usage(input_tokens, output_tokens=delivered, estimated=True)
    missing = max(0, delivered - reported.all_output)
    return replace(
        reported,
        input_tokens=reported.input_tokens if reported.all_input else input_tokens,
        output_tokens=reported.output_tokens + missing,
        estimated=True,
        billed_pico=None if missing else reported.billed_pico,  # the bill does not include the missing tokens
    )


def with_unseen(usage: Usage, unseen: int, most: int | None, *, plain: bool) -> Usage:
    """The `usage` of an attempt that ended early, including the tokens that were probably generated and did not arrive.
    `unseen`: estimated number of these tokens. `plain`: whether the answer is not streamed. `most`: maximum output of
    the call in tokens, which limits the sum."""
    seen = usage.all_output - (usage.output_tokens if plain else usage.reasoning_tokens)
    if most is not None:
        unseen = min(unseen, max(0, most - seen))
    if plain:
        return replace(usage, output_tokens=max(usage.output_tokens, unseen))
    return replace(usage, reasoning_tokens=max(usage.reasoning_tokens, unseen))
