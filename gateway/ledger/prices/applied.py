"""The unit prices with which a row's cost was computed. The row stores them as text."""

from __future__ import annotations

from typing import Any

from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.units import usd_text

_CLASSES = (
    *("input", "output", "cached_input", "cache_write_5m", "cache_write_1h", "reasoning", "audio"),
    *("audio_input", "image_input", "image"),
)
_NAMES = frozenset(_CLASSES)
MOST_SOURCE = 200
"""Maximum characters of the column `price_source`."""


def text_of(price: Price) -> str:
    """The price as text, such as `input=150000 output=600000` (pico-dollars per token). Classes without a price are
    omitted."""
    classes = ((name, getattr(price, name)) for name in _CLASSES)
    return " ".join(f"{name}={pico}" for name, pico in classes if pico is not None)


def price_of(prices: str) -> Price:
    """Parse the result of `text_of`. Raises ValueError, TypeError."""
    classes: dict[str, Any] = {name: int(pico) for name, pico in (part.split("=") for part in prices.split())}
    if not classes.keys() <= _NAMES:
        raise ValueError(f"unknown classes of tokens: {prices}")
    return Price(**classes)


def per_million(prices: str) -> dict[str, str]:
    """Convert the result of `text_of` to USD per million tokens: token class → exact decimal text."""
    parts = (part.split("=") for part in prices.split())
    return {name: usd_text(int(pico) * 10**6) for name, pico in parts}


class Terms:
    """A price, with the texts that ledger rows contain about it. The texts are made once and used for all attempts with
    this price."""

    __slots__ = ("_above", "_text", "flat", "price", "source")

    def __init__(self, price: Price) -> None:
        self.price = price
        self.source = _source(price)
        self._text, self._above = text_of(price), dict[int, tuple[str, str]]()
        self.flat = self._text if price.beyond is None else ""
        """The result of `text`, if it does not depend on the number of input tokens; else empty."""

    def text(self, input_tokens: int) -> str:
        """The unit prices as text, for a call with this number of input tokens at the standard service tier."""
        if self.price.beyond is None or input_tokens <= self.price.beyond[0]:
            return self._text
        return self._written(self.price.tier(input_tokens))[0]

    def billed(self, usage: Usage) -> tuple[str, str]:
        """The texts for the row's columns `prices` and `price_source`. They depend on the service tier in `usage`."""
        if not usage.service_tier:
            return self.flat or self.text(usage.all_input), self.source
        return self._written(self.price.billed(usage))

    def _written(self, price: Price) -> tuple[str, str]:
        if id(price) not in self._above:  # `self.price` keeps it alive, so ids are unique
            self._above[id(price)] = text_of(price), _source(price)
        return self._above[id(price)]


def _source(price: Price) -> str:
    return (f"{price.source} ({price.as_of})" if price.as_of else price.source)[:MOST_SOURCE]
