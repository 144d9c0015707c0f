"""What tokens cost on one backend. Unknown is `None`, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gateway.domain.usage import Usage


@dataclass(frozen=True, slots=True)
class Price:
    """Pico-dollars per token and class (USD per 1M tokens × 10⁶), with where and when it was read."""

    input: int
    output: int
    cached_input: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    audio: int | None = None
    source: str = ""
    as_of: str = ""
    beyond: tuple[int, Price] | None = None
    """Above so many input tokens, every token of the call costs the other price."""
    audio_input: int | None = None
    image_input: int | None = None
    image: int | None = None

    @classmethod
    def per_million(
        cls, input: Decimal, output: Decimal, *, source: str = "", as_of: str = "", **classes: Decimal
    ) -> Price:
        """From USD per 1M tokens, e.g. `Price.per_million(Decimal("0.15"), Decimal("0.60"))`."""
        optional: dict[str, Any] = {name: int(usd * 10**6) for name, usd in classes.items()}
        return cls(
            input=int(input * 10**6),
            output=int(output * 10**6),
            source=source,
            as_of=as_of,
            **optional,
        )

    def cost(self, usage: Usage) -> int:
        """Pico-dollars of `usage`. A class without its own price costs what its parent class does."""
        if self.beyond is not None and usage.all_input > self.beyond[0]:
            return self.beyond[1].cost(usage)
        cost = usage.input_tokens * self.input + usage.output_tokens * self.output
        if usage.all_input == usage.input_tokens and usage.all_output == usage.output_tokens:
            return cost
        if usage.cached_tokens:
            cost += usage.cached_tokens * (self.input if self.cached_input is None else self.cached_input)
        if usage.cache_write_5m_tokens or usage.cache_write_1h_tokens:
            write_5m = self.input if self.cache_write_5m is None else self.cache_write_5m
            write_1h = write_5m if self.cache_write_1h is None else self.cache_write_1h
            cost += usage.cache_write_5m_tokens * write_5m + usage.cache_write_1h_tokens * write_1h
        if usage.reasoning_tokens:
            cost += usage.reasoning_tokens * (self.output if self.reasoning is None else self.reasoning)
        if usage.audio_tokens:
            cost += usage.audio_tokens * (self.output if self.audio is None else self.audio)
        if usage.audio_input_tokens or usage.image_input_tokens or usage.image_tokens:
            cost += self._seen(usage)
        return cost

    def _seen(self, usage: Usage) -> int:
        """Pico-dollars of what few calls have: sound and images going in, images coming out."""
        heard = self.input if self.audio_input is None else self.audio_input
        shown = self.input if self.image_input is None else self.image_input
        drawn = self.output if self.image is None else self.image
        return usage.audio_input_tokens * heard + usage.image_input_tokens * shown + usage.image_tokens * drawn

    def tier(self, input_tokens: int) -> Price:
        """The price that holds for a call with so much input."""
        price = self
        while price.beyond is not None and input_tokens > price.beyond[0]:
            price = price.beyond[1]
        return price

    def plain(self, input_tokens: int, output_tokens: int) -> int:
        """Pico-dollars where no token is cached, reasoned or heard: `cost` without a Usage."""
        if self.beyond is not None and input_tokens > self.beyond[0]:
            return self.beyond[1].plain(input_tokens, output_tokens)
        return input_tokens * self.input + output_tokens * self.output

    def most(self, input_tokens: int, output_tokens: int, *, cache_writes: bool = False) -> int:
        """Pico-dollars of a call at worst, however its tokens fall into classes (audio apart)."""
        if self.beyond is not None and input_tokens > self.beyond[0]:
            return self.beyond[1].most(input_tokens, output_tokens, cache_writes=cache_writes)
        output = self.output if self.reasoning is None else max(self.output, self.reasoning)
        written = max(self.input, self.cache_write_5m or 0, self.cache_write_1h or 0) if cache_writes else self.input
        return input_tokens * written + output_tokens * output

    @property
    def free(self) -> bool:
        return not (self.input or self.output)
