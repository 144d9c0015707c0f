"""Reads the prices for a replay from a file. The prices are USD per 1M tokens, for each model and token class."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson

from gateway.domain.money.price import Price
from gateway.domain.prompt_cache import rules_of
from gateway.domain.units import parse_token_usd

_NAMES: Mapping[str, tuple[str, ...]] = {
    "input": ("input",),
    "output": ("output",),
    "cached_input": ("cached_input", "cache_read", "read"),
    "cache_write_5m": ("cache_write_5m", "cache_write", "write_5m"),
    "cache_write_1h": ("cache_write_1h", "write_1h"),
}
"""Token class → names of this class in price files."""
_DATE = re.compile(r"-\d{8}$|-\d{4}-\d\d-\d\d$")
_DEEP_DISCOUNT = re.compile(r"claude-\w+-5-5")


def load_prices(path: Path) -> dict[str, Price]:
    """Read prices from a file. Returns model → price. The file contains `{"MODEL": {"input": 5, "output": 25}}`, or a
    list of objects with the same fields and a field `model`. The list may also be the value of a field `models`. If a
    token class is missing, its price is computed with the provider's usual factor. Raises OSError, and ValueError that
    names the wrong entry."""
    read = orjson.loads(path.read_bytes())
    if type(read) is not dict:
        raise ValueError(f"{path}: must be an object of models and their prices")
    entries = read.get("models", read)
    if type(entries) is list:
        entries = {each["model"]: each for each in entries if type(each) is dict and "model" in each}
    if type(entries) is not dict or not entries:
        raise ValueError(f"{path}: no model in it has prices")
    return {model: _price(model, entry) for model, entry in entries.items() if type(entry) is dict}


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The price of a model; None if `prices` has no price for the model. The name `model` may also contain a date or a
    provider."""
    name = model.rpartition("/")[2]
    for candidate in (model, name, _DATE.sub("", name)):
        if (price := prices.get(candidate)) is not None:
            return price
    return None


def _price(model: str, entry: Mapping[str, Any]) -> Price:
    found: dict[str, Decimal] = {}
    for name, names in _NAMES.items():
        said = next((entry[each] for each in names if entry.get(each) is not None), None)
        if said is not None:
            found[name] = parse_token_usd(said)
    if "input" not in found or "output" not in found:
        raise ValueError(f"{model}: needs input and output, in USD per 1M tokens")
    rules, once = rules_of(model), found["input"]
    if rules.writes_cost:
        read = Decimal("0.05") if _DEEP_DISCOUNT.search(model) else Decimal("0.1")
        usual = {"cached_input": read * once, "cache_write_5m": once * 5 / 4, "cache_write_1h": once * 2}
    else:
        usual = {"cached_input": once / 2}
    pico = {name: int(usd * 10**6) for name, usd in {**usual, **found}.items()}
    return Price(
        *(pico["input"], pico["output"], pico["cached_input"]), pico.get("cache_write_5m"), pico.get("cache_write_1h")
    )
