"""Prices as they are written in files: US dollars per 1M tokens, by class and service tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from itertools import combinations
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gateway.domain.money.price import CLASSES, PARENTS, Price
from gateway.domain.section import Section
from gateway.domain.units import TokenUsd

OPTIONAL = (
    *("cached_input", "cache_write_5m", "cache_write_1h", "reasoning"),
    *("audio", "audio_input", "image_input", "image"),
)
"""Token classes that cost as much as their parent class if they have no price of their own."""
MOST_FACTORS = 4
"""Maximum number of factors in the tiers of one model. Each combination of factors gets a price."""


class Classes(Section):
    """Prices of token classes in USD per 1M tokens."""

    input: TokenUsd
    cached_input: TokenUsd | None = None
    cache_write_5m: TokenUsd | None = None
    cache_write_1h: TokenUsd | None = None
    output: TokenUsd
    reasoning: TokenUsd | None = None
    audio: TokenUsd | None = None
    audio_input: TokenUsd | None = None
    image_input: TokenUsd | None = None
    image: TokenUsd | None = None

    def price(self, source: str, as_of: str, beyond: tuple[int, Price] | None = None) -> Price:
        classes: dict[str, Decimal] = {name: usd for name in OPTIONAL if (usd := getattr(self, name)) is not None}
        price = Price.per_million(self.input, self.output, source=source, as_of=as_of, **classes)
        return replace(price, beyond=beyond)


class LongContext(Classes):
    """The prices of a long call: they apply to every token of a call with more than `tokens` input tokens."""

    tokens: int = Field(gt=0)


class TierClasses(Classes):
    """The prices of one service tier. A class without a price here costs its standard price · max(1, tier price /
    standard price). For input classes, this ratio is computed from the input prices; for output classes, from the
    output prices.
    """

    beyond: LongContext | None = None


Factor = Annotated[Decimal, Field(gt=0, le=1000)]
ServiceTier = Factor | TierClasses
"""A factor on all standard prices, or prices of the tier's own."""


def few_factors(tiers: dict[str, Any]) -> dict[str, Any]:
    """Raise ValueError if more than MOST_FACTORS of the service tiers in `tiers` are written as a factor on the
    standard price.
    """
    if sum(isinstance(given, Decimal) for given in tiers.values()) > MOST_FACTORS:
        raise ValueError(f"at most {MOST_FACTORS} tiers may be factors, because each combination of them needs a price")
    return tiers


TierKey = Annotated[str, Field(pattern=r"^[a-z0-9_.:+-]{1,32}$")]
ServiceTiers = Annotated[dict[TierKey, ServiceTier], AfterValidator(few_factors)]
"""Tier name (as in `Usage.service_tier`) → its prices. Prices of combined tiers are computed from the prices of their
parts."""


def at_tiers(price: Price, tiers: Mapping[str, ServiceTier], choosable: tuple[str, ...] = ()) -> Price:
    """Add to `price` the prices of the service tiers in `tiers`. The factors of tiers that apply together are
    multiplied. `choosable`: the tiers that the provider may use for a call that names no tier.
    """
    if not tiers:
        return price
    own = {name: given for name, given in tiers.items() if isinstance(given, TierClasses)}
    factors = {name: given for name, given in tiers.items() if isinstance(given, Decimal)}
    found: dict[str, Price] = {}
    for count in range(len(factors) + 1):
        for names in combinations(sorted(factors), count):
            factor = Decimal(1)
            for name in names:
                factor *= factors[name]
            for tier in ("", *own):
                if joined := "+".join(sorted((*names, *([tier] if tier else ())))):
                    base = _own(price, own[tier]) if tier else price
                    found[joined] = times(base, factor, f", {joined} tier")
    return replace(price, tiers=found, choosable=tuple(name for name in choosable if name in found))


def times(price: Price, factor: Decimal, note: str) -> Price:
    """Multiply all prices of `price` by `factor`, and round them up. `note`: text that is added to the source of the
    price."""
    classes: dict[str, Any] = {
        name: rounded_up(value * factor) for name in CLASSES if (value := getattr(price, name)) is not None
    }
    beyond = None if price.beyond is None else (price.beyond[0], times(price.beyond[1], factor, note))
    tiers = {name: times(tier, factor, note) for name, tier in price.tiers.items()}
    return replace(price, **classes, source=price.source + note, beyond=beyond, tiers=tiers)


def rounded_up(pico: Decimal) -> int:
    return int(pico.to_integral_value(ROUND_CEILING))


def _own(price: Price, given: TierClasses) -> Price:
    """The prices of a service tier, including those for long calls. `given`: the tier's prices that are known. Missing
    prices are derived from the standard prices in `price`.
    """
    flat = _completed(price, given)
    if given.beyond is not None:
        usual = price if price.beyond is None else price.beyond[1]
        return replace(flat, beyond=(given.beyond.tokens, _completed(usual, given.beyond)))
    if price.beyond is None:
        return flat
    tokens, above = price.beyond
    return replace(flat, beyond=(tokens, _in_proportion(above, price, flat)))


def _completed(price: Price, given: Classes) -> Price:
    """The prices of a service tier. `given`: the tier's prices that are known. A token class without a known price
    costs at least as much as at the standard tier.
    """
    own = given.price(price.source, price.as_of)
    missing: dict[str, Any] = {
        name: rounded_up(value * max(_ratio(own, price, name), Decimal(1)))
        for name in OPTIONAL
        if getattr(own, name) is None and (value := getattr(price, name)) is not None
    }
    return replace(own, **missing)


def _in_proportion(above: Price, usual: Price, tier: Price) -> Price:
    """Derive the price of a long call at a service tier: `above` · `tier` / `usual`. `above`: standard price of a long
    call. `usual`: standard price of a short call. `tier`: price of a short call at the service tier.
    """
    classes: dict[str, Any] = {
        name: rounded_up(value * _proportion(tier, usual, name))
        for name in CLASSES
        if (value := getattr(above, name)) is not None
    }
    return replace(above, **classes, beyond=None)


def _proportion(one: Price, other: Price, name: str) -> Decimal:
    mine, theirs = getattr(one, name), getattr(other, name)
    return Decimal(mine) / theirs if mine is not None and theirs else _ratio(one, other, name)


def _ratio(one: Price, other: Price, name: str) -> Decimal:
    """The ratio of the price `one` to the price `other`, for the token class `name`. For output classes, the output
    prices are compared; for input classes, the input prices.
    """
    while name in PARENTS:
        name = PARENTS[name]
    mine, theirs = getattr(one, name), getattr(other, name)
    return Decimal(mine) / theirs if theirs else Decimal(1)
