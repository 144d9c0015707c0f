"""The token prices of one backend. An unknown price is `None`, never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from gateway.domain.money.usage import Usage

PARENTS = {
    "cached_input": "input",
    "cache_write_5m": "input",
    "cache_write_1h": "cache_write_5m",
    "reasoning": "output",
    "audio": "output",
    "audio_input": "input",
    "image_input": "input",
    "image": "output",
}
"""Token class → the class whose price is used if the class has no price of its own."""
CLASSES = ("input", "output", *PARENTS)


@dataclass(frozen=True, slots=True)
class Price:
    """A price for each token class, in pico-dollars per token (USD per 1M tokens × 10⁶), with its source and date."""

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
    """(Number of input tokens, price of long calls). In a call with more input tokens, each token has this
    other price."""
    audio_input: int | None = None
    image_input: int | None = None
    image: int | None = None
    tiers: Mapping[str, Price] = field(default_factory=dict, hash=False)
    """Service tier (as in `Usage.service_tier`) → its price. The price of a tier has no tiers itself."""
    choosable: tuple[str, ...] = ()
    """The service tiers that the provider may use for a call that names no tier."""
    every_tier: bool = False
    """Whether this price applies at every service tier, as for a machine with an hourly price."""
    _dearest: Price | None = field(default=None, init=False, repr=False, compare=False)
    _unasked: Price | None = field(default=None, init=False, repr=False, compare=False)
    _at_least: Mapping[str, Price] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the derived prices once, because every request needs them."""
        if self.tiers:
            standard = self.without_tiers()
            chosen = [self.tiers[name] for name in self.choosable if name in self.tiers]
            object.__setattr__(self, "_dearest", dearest_of((standard, *self.tiers.values())))
            object.__setattr__(self, "_unasked", dearest_of((standard, *chosen)) if chosen else None)
            floors = {name: dearest_of((standard, tier)) for name, tier in self.tiers.items()}
            object.__setattr__(self, "_at_least", floors)

    @classmethod
    def per_million(
        cls, input: Decimal, output: Decimal, *, source: str = "", as_of: str = "", **classes: Decimal
    ) -> Price:
        """Make a price from USD per 1M tokens: `Price.per_million(Decimal("0.15"), Decimal("0.60"))`."""
        optional: dict[str, Any] = {name: int(usd * 10**6) for name, usd in classes.items()}
        return cls(
            input=int(input * 10**6),
            output=int(output * 10**6),
            source=source,
            as_of=as_of,
            **optional,
        )

    def at(self, service_tier: str) -> Price | None:
        """The price at the service tier with this name; "" is the standard tier. None if the price is unknown."""
        return self if not service_tier or self.every_tier else self.tiers.get(service_tier)

    def dearest(self) -> Price:
        """A price that is, in each token class, at least as high as the price at any known service tier."""
        return self if self._dearest is None else self._dearest

    def unasked(self) -> Price:
        """The price of a call that names no service tier. The provider then chooses a tier. So the price is at least
        as high as the price at any tier that the provider may choose.
        """
        return self if self._unasked is None else self._unasked

    def at_least(self, service_tier: str) -> Price | None:
        """The price at a service tier, or the standard price if that is higher. None if the price at this tier is
        unknown."""
        return self if not service_tier or self.every_tier else self._at_least.get(service_tier)

    def without_tiers(self) -> Price:
        """The price of the standard tier alone."""
        return replace(self, tiers={}, choosable=()) if self.tiers else self

    def billed(self, usage: Usage) -> Price:
        """The price of each token of the call with this `usage`. It depends on the service tier and on the length of
        the call."""
        price = self
        if usage.service_tier and not self.every_tier:
            price = self.tiers.get(usage.service_tier) or self.dearest()
        return price if price.beyond is None else price.tier(usage.all_input)

    def cost(self, usage: Usage) -> int:
        """The cost of the tokens in `usage` at its service tier, in pico-dollars, without fees. If a token class has
        no price, its tokens cost as much as those of the class that contains it, such as `input` for cached input.
        An unknown tier costs as much as the most expensive one.
        """
        price = self
        if usage.service_tier or self.beyond is not None:
            price = self.billed(usage)
        cost = usage.input_tokens * price.input + usage.output_tokens * price.output
        if usage.all_input == usage.input_tokens and usage.all_output == usage.output_tokens:
            return cost
        if usage.cached_tokens:
            cost += usage.cached_tokens * (price.input if price.cached_input is None else price.cached_input)
        if usage.cache_write_5m_tokens or usage.cache_write_1h_tokens:
            write_5m = price.input if price.cache_write_5m is None else price.cache_write_5m
            write_1h = write_5m if price.cache_write_1h is None else price.cache_write_1h
            cost += usage.cache_write_5m_tokens * write_5m + usage.cache_write_1h_tokens * write_1h
        if usage.reasoning_tokens:
            cost += usage.reasoning_tokens * (price.output if price.reasoning is None else price.reasoning)
        if usage.audio_tokens:
            cost += usage.audio_tokens * (price.output if price.audio is None else price.audio)
        if usage.audio_input_tokens or usage.image_input_tokens or usage.image_tokens:
            cost += price._seen(usage)
        return cost

    def _seen(self, usage: Usage) -> int:
        """The cost of rare token classes in pico-dollars: sound and images in the input, images in the output."""
        audio_pico = self.input if self.audio_input is None else self.audio_input
        shown = self.input if self.image_input is None else self.image_input
        drawn = self.output if self.image is None else self.image
        return usage.audio_input_tokens * audio_pico + usage.image_input_tokens * shown + usage.image_tokens * drawn

    def tier(self, input_tokens: int) -> Price:
        """The price of a call with this number of input tokens."""
        price = self
        while price.beyond is not None and input_tokens > price.beyond[0]:
            price = price.beyond[1]
        return price

    def plain(self, input_tokens: int, output_tokens: int) -> int:
        """The cost of a call in pico-dollars, if none of its tokens are cached, reasoning or audio tokens."""
        if self.beyond is not None and input_tokens > self.beyond[0]:
            return self.beyond[1].plain(input_tokens, output_tokens)
        return input_tokens * self.input + output_tokens * self.output

    def most(
        self,
        input_tokens: int,
        output_tokens: int,
        *,
        cache_writes: bool = False,
        image_input: int = 0,
        audio_input: int = 0,
        media_output: bool = False,
    ) -> int:
        """The maximum cost of a call in pico-dollars, whatever the classes of its tokens are. `image_input`,
        `audio_input`: tokens that `input_tokens` does not include. `media_output`: whether the output may be sound or
        images."""
        price = self if self.beyond is None else self.tier(input_tokens + image_input + audio_input)
        if price.reasoning is None and not (cache_writes or image_input or audio_input or media_output):
            return input_tokens * price.input + output_tokens * price.output
        output = price.output if price.reasoning is None else max(price.output, price.reasoning)
        if media_output:
            output = max(output, price.audio or 0, price.image or 0)
        written = price.input
        if cache_writes:
            written = max(written, price.cache_write_5m or 0, price.cache_write_1h or 0)
        cost = input_tokens * written + output_tokens * output
        if image_input:
            cost += image_input * (price.input if price.image_input is None else price.image_input)
        if audio_input:
            cost += audio_input * (price.input if price.audio_input is None else price.audio_input)
        return cost

    @property
    def free(self) -> bool:
        return not (self.input or self.output)


def dearest_of(prices: Sequence[Price]) -> Price:
    """A price that has, for each token class and call length, the highest value among `prices`. Its source is that of
    the first price."""
    first, *others = prices
    if not others:
        return first
    long = [price.beyond for price in prices if price.beyond is not None]
    beyond = None
    if long:
        beyond = (
            min(tokens for tokens, _ in long),
            dearest_of([*(_flat(one) for one in prices), *(one for _, one in long)]),
        )
    return replace(_most(prices), beyond=beyond, source=f"{first.source}, dearest tier")


def _flat(price: Price) -> Price:
    return price if price.beyond is None else replace(price, beyond=None)


def _most(prices: Sequence[Price]) -> Price:
    """The highest value among `prices` for each token class. If none of `prices` has a value for a class, the result
    has none either."""
    most: dict[str, Any] = {"input": max(p.input for p in prices), "output": max(p.output for p in prices)}
    for name in PARENTS:
        if any(getattr(price, name) is not None for price in prices):
            most[name] = max(effective(price, name) for price in prices)
    return replace(prices[0], **most, tiers={}, choosable=())


def effective(price: Price, name: str) -> int:
    """The pico-dollars of one token of the class `name`. If this class has no price, the price of the class that
    contains it is used, such as `input` for cached input.
    """
    own: int | None = getattr(price, name)
    return effective(price, PARENTS[name]) if own is None else own
