"""Two public price lists in the shape of ours, read from installed packages without the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import cache
from importlib.metadata import files
from typing import Any

import orjson
from genai_prices.data import providers
from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

from gateway.domain.money.price import CLASSES, Price, effective
from gateway.domain.units import PICO_PER_USD
from gateway.ledger.prices.catalogue import ListedPrice, Listing

Prices = dict[str, Decimal]
"""`input`, `batch.output`, `priority.beyond.cached_input` … → USD per 1M tokens; `beyond.tokens` → tokens."""

LITELLM = {
    "input": "input_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write_5m": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "output": "output_cost_per_token",
    "reasoning": "output_cost_per_reasoning_token",
    "audio": "output_cost_per_audio_token",
    "audio_input": "input_cost_per_audio_token",
    "image_input": "input_cost_per_image_token",
    "image": "output_cost_per_image_token",
}
LITELLM_TIERS = {"": "", "batch.": "_batches", "priority.": "_priority", "flex.": "_flex", "ultrafast.": "_ultrafast"}
LITELLM_PROVIDERS = {
    "google": ("gemini", "vertex_ai-language-models", "vertex_ai-embedding-models"),
    "cohere": ("cohere", "cohere_chat"),
    "together": ("together_ai",),
    "fireworks": ("fireworks_ai", "fireworks_ai-embedding-models"),
    "alibaba": ("dashscope",),
}
"""Where it has another name than ours."""
GENAI = {
    "input": "input_mtok",
    "cached_input": "cache_read_mtok",
    "cache_write_5m": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
    "reasoning": "output_reasoning_mtok",
    "audio": "output_audio_mtok",
    "audio_input": "input_audio_mtok",
    "image_input": "input_image_mtok",
    "image": "output_image_mtok",
}
GENAI_VARIANTS = {
    "": {},
    "batch.": {"processing": "batch"},
    "priority.": {"service_tier": "priority"},
    "flex.": {"service_tier": "flex"},
    "fast.": {"speed": "fast"},
}
GENAI_PROVIDERS = {"xai": "x-ai", "moonshot": "moonshotai", "voyage": "voyageai"}


def ours(listed: ListedPrice, price: Price) -> Prices:
    """Of every class, tier and length that has a price, what a class without its own costs included."""
    found: Prices = {}
    for prefix, one in (("", price), *((f"{name}.", tier) for name, tier in price.tiers.items())):
        for where, at in _lengths(prefix, one):
            found |= {f"{where}{name}": Decimal(effective(at, name)) * 10**6 / PICO_PER_USD for name in CLASSES}
    if listed.beyond is not None:
        found["beyond.tokens"] = Decimal(listed.beyond.tokens)
    return found


def _lengths(prefix: str, price: Price) -> Iterator[tuple[str, Price]]:
    yield prefix, price
    if price.beyond is not None:
        yield f"{prefix}beyond.", price.beyond[1]


@cache
def litellm_map() -> Mapping[str, dict[str, Any]]:
    """The map that the installed package brings; the package itself is not imported."""
    name = "litellm/model_prices_and_context_window_backup.json"
    path = next(file for file in files("litellm") or () if str(file) == name)
    found: dict[str, dict[str, Any]] = orjson.loads(path.locate().read_bytes())  # type: ignore[attr-defined]
    return found


def in_litellm(listed: ListedPrice, listing: Listing) -> Prices | None:
    owners = LITELLM_PROVIDERS.get(listed.provider, (listed.provider,))
    names = (listed.model, *listed.aliases)
    prefixes = listing.providers[listed.provider].prefixes
    for key in (*(f"{prefix}/{name}" for name in names for prefix in prefixes), *names):
        facts = litellm_map().get(key)
        if facts is not None and facts.get("litellm_provider") in owners:
            return _of_litellm(facts)
    return None


def _of_litellm(facts: dict[str, Any]) -> Prices:
    found: Prices = {}
    above = min((int(k.split("_above_")[1].split("k_")[0]) for k in facts if _is_above(k)), default=None)
    if above is not None:
        found["beyond.tokens"] = Decimal(above * 1000)
    for tier, end in LITELLM_TIERS.items():
        for name, key in LITELLM.items():
            for where, middle in ((tier, ""), (f"{tier}beyond.", f"_above_{above}k_tokens")):
                if (value := facts.get(f"{key}{middle}{end}")) is not None and (value or "cache_write" not in name):
                    found[f"{where}{name}"] = _usd(value)
    special = facts.get("provider_specific_entry") or {}
    for tier in ("fast", "us"):
        if tier in special:
            found |= {f"{tier}.{name}": _usd(facts[LITELLM[name]] * special[tier]) for name in ("input", "output")}
    return found


def _is_above(key: str) -> bool:
    return key.startswith("input_cost_per_token_above_") and key.endswith("k_tokens")


def _usd(per_token: float) -> Decimal:
    """Figures there were divided as floats, so that some end in noise."""
    return (Decimal(str(per_token)) * 10**6).quantize(Decimal("0.000001"))


def in_genai_prices(listed: ListedPrice, listing: Listing) -> Prices | None:
    at = datetime.combine(listed.as_of or listing.as_of, time(12), UTC)
    known = GENAI_PROVIDERS.get(listed.provider, listed.provider)
    provider = next((one for one in providers if one.id == known), None)
    if provider is None:
        return None
    for name in (listed.model, *listed.aliases):
        if (model := provider.find_model(name)) is not None:
            return _of_genai(model, at)
    return None


def _of_genai(model: ModelInfo, at: datetime) -> Prices:
    found: Prices = {}
    for tier, context in GENAI_VARIANTS.items():
        standard = model.get_prices(at)
        price = model.get_prices(at, context) if context else standard
        if not context or price != standard:
            found |= _of_genai_price(price, tier)
    return found


def _of_genai_price(price: ModelPrice, tier: str) -> Prices:
    found: Prices = {}
    for name, key in GENAI.items():
        value = getattr(price, key, None)
        if isinstance(value, TieredPrices):
            found[f"{tier}{name}"] = value.base
            found[f"{tier}beyond.{name}"] = value.tiers[0].price
            if not tier:
                found["beyond.tokens"] = Decimal(value.tiers[0].start)
        elif value is not None:
            found[f"{tier}{name}"] = value
    return found
