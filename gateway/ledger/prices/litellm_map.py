"""Compares LiteLLM's file of model prices (the map) with this gateway's price list. The file is read as plain JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from gateway.domain.money.price_classes import Classes
from gateway.ledger.prices.catalogue import Catalogue, ListedPrice, Provider, complaints
from gateway.settings.files import ConfigError

FILE = "model_prices_and_context_window_backup.json"
OWNERS = {
    "openai": ("openai",),
    "anthropic": ("anthropic",),
    "google": ("gemini", "vertex_ai-language-models", "vertex_ai-embedding-models"),
    "mistral": ("mistral",),
    "groq": ("groq",),
    "deepseek": ("deepseek",),
    "xai": ("xai",),
    "cohere": ("cohere_chat", "cohere"),
    "cerebras": ("cerebras",),
    "sambanova": ("sambanova",),
    "together": ("together_ai",),
    "fireworks": ("fireworks_ai",),
    "deepinfra": ("deepinfra",),
    "alibaba": ("dashscope",),
    "moonshot": ("moonshot",),
    "perplexity": ("perplexity",),
    "voyage": ("voyage",),
}
"""Provider in this gateway's list → the corresponding values of `litellm_provider` in the map."""
CLASSES = {
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
COMPARED = (*CLASSES, "beyond", "batch", "service_tiers")
TIERS = ("priority", "flex", "ultrafast")
"""Service tiers that have prices in the map. Keys in the map have them as suffixes."""
INCLUSIVE = ("xai",)
"""Providers whose price for long calls applies to calls of exactly the map's threshold, and not only to longer calls.
"""
FACTORS = ("fast", "us")
"""Service tiers given as factors, in the map's `provider_specific_entry`."""
MOST_CHANGE = 10
"""Maximum factor between an old and a new price. A larger change is refused, because it is usually a mistake."""
_ABOVE = re.compile(r"^input_cost_per_token_above_(\d+)k_tokens$")
_MODES = ("chat", "responses", "completion", "embedding")


@dataclass(frozen=True, slots=True)
class Change:
    """A changed or new entry of the gateway's list. `differs`: field → (old, new) as JSON values; empty for a new
    model."""

    listed: ListedPrice
    differs: dict[str, tuple[Any, Any]]

    @property
    def new(self) -> bool:
        return not self.differs


@dataclass(frozen=True, slots=True)
class Refusal:
    """An entry of LiteLLM's file that is refused because its prices are implausible. `text`: file, key and reason."""

    known: bool
    """Whether the gateway's list contains the model."""
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between the gateway's price list and LiteLLM's file."""

    changes: tuple[Change, ...]
    """The changed entries, followed by new models."""
    gone: tuple[str, ...]
    """Models of the gateway's list that are missing from the map."""
    refused: tuple[Refusal, ...]
    same: int
    """Number of models without differences between the two lists."""


def installed() -> Path | None:
    """The path of the price file in the installed package litellm; None if litellm is not installed. The package is not
    imported, because its import is slow."""
    spec = find_spec("litellm")
    path = Path(spec.origin).with_name(FILE) if spec is not None and spec.origin else None
    return path if path is not None and path.is_file() else None


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Read LiteLLM's file: name of a model → facts about the model. Raises ConfigError."""
    try:
        found = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except orjson.JSONDecodeError as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    if not isinstance(found, dict) or not all(isinstance(facts, dict) for facts in found.values()):
        raise ConfigError([f"{path}: must be an object of objects, as litellm's map is"])
    return {name: facts for name, facts in found.items() if name != "sample_spec"}


def compare(register: Catalogue, found: dict[str, dict[str, Any]], name: str, today: date) -> Comparison:
    """Compare the gateway's price list with `found`, the content of LiteLLM's file. Providers that the gateway's list
    does not have are skipped. `name`: the file's name, for the texts of refusals."""
    changes, gone, refused, same, seen = [], [], [], 0, set()
    for ours in _latest(register):
        key = _theirs(ours, register.listing.providers[ours.provider], found)
        if key is None:
            gone.append(ours.name)
            continue
        seen.add(key)
        try:
            theirs = listed_of(ours.provider, ours.model, found[key], today)
            differs = _differences(ours, theirs)
        except ValueError as error:
            refused.append(Refusal(True, f"{name}: {key}: {error}"))
            continue
        if differs:
            changes.append(Change(_kept(ours, theirs), differs))
        same += not differs
    for key, provider, model in _unknown(register, found, seen):
        try:
            changes.append(Change(listed_of(provider, model, found[key], today), {}))
        except ValueError as error:
            refused.append(Refusal(False, f"{name}: {key}: {error}"))
    return Comparison(tuple(changes), tuple(gone), tuple(refused), same)


def own_file(changes: tuple[Change, ...], before: tuple[ListedPrice, ...], via: str, today: date) -> bytes:
    """The new content of the operator's price file: the entries `before`, updated with `changes`. Entries in `changes`
    replace old entries of the same model, or are added."""
    models = {
        (one.provider, one.model, one.valid_from): one for one in (*before, *(change.listed for change in changes))
    }
    entries = [one.model_dump(mode="json", exclude_unset=True) for one in models.values()]
    return orjson.dumps(
        {"as_of": today.isoformat(), "via": via, "models": entries},
        option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
    )


def _latest(register: Catalogue) -> Iterator[ListedPrice]:
    """Yield one entry of the gateway's price list for each model name. If a name has several entries, the last one is
    yielded."""
    models = {listed.name: listed for listed in register.models if listed.provider in register.listing.providers}
    yield from models.values()


def _theirs(ours: ListedPrice, provider: Provider, found: dict[str, dict[str, Any]]) -> str | None:
    owners = OWNERS.get(ours.provider, ())
    names = [ours.model, *ours.aliases]
    for key in [*(f"{prefix}/{name}" for name in names for prefix in provider.prefixes), *names]:
        if key in found and found[key].get("litellm_provider") in owners:
            return key
    return None


def _unknown(register: Catalogue, found: dict[str, dict[str, Any]], seen: set[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (key, provider, model) for each model of LiteLLM's file that the gateway's list does not have. `seen`: keys
    of the file whose models the list has."""
    yielded = set()
    providers = {theirs: ours for ours, owners in OWNERS.items() for theirs in owners}
    for key, facts in found.items():
        provider = providers.get(str(facts.get("litellm_provider")))
        if provider is None or key in seen or facts.get("mode") not in _MODES:
            continue
        model = _bare(key, register.listing.providers[provider].prefixes)
        if (provider, model) not in yielded and register.named(f"{provider}/{model}") is None:
            yielded.add((provider, model))
            yield key, provider, model


def _bare(key: str, prefixes: tuple[str, ...]) -> str:
    for prefix in sorted(prefixes, key=len, reverse=True):
        if key.startswith(f"{prefix}/"):
            return _bare(key.removeprefix(f"{prefix}/"), prefixes)
    return key


def listed_of(provider: str, model: str, facts: dict[str, Any], today: date) -> ListedPrice:
    """Convert an entry of LiteLLM's file to the gateway's format. Raises ValueError with one line of text if prices are
    invalid or missing."""
    classes = _classes(facts, "")
    if facts.get("mode") == "embedding":
        classes.setdefault("output", Decimal(0))  # embeddings have no output
    if "input" not in classes or "output" not in classes:
        missing = " and ".join(CLASSES[name] for name in ("input", "output") if name not in classes)
        raise ValueError(f"{missing}: is missing, and unknown is not 0")
    if not classes["input"] and not classes["output"]:
        raise ValueError("input_cost_per_token: is 0; if it is free, set backends.price")
    entry: dict[str, Any] = {"provider": provider, "model": model, "as_of": today, **classes}
    if batch := _whole(_classes(facts, "_batches")):
        entry["batch"] = batch
    if beyond := _beyond(facts, ""):
        entry["beyond"] = beyond | {"tokens": beyond["tokens"] - (provider in INCLUSIVE)}
    if tiers := _tiers(facts):
        entry["service_tiers"] = tiers
    for ours, theirs in (("window_tokens", "max_input_tokens"), ("max_output_tokens", "max_output_tokens")):
        if isinstance(facts.get(theirs), int) and facts[theirs] > 0:
            entry[ours] = facts[theirs]
    if str(facts.get("source", "")).startswith("https://"):
        entry["source"] = facts["source"]
    try:
        return ListedPrice.model_validate(entry)
    except ValidationError as error:
        raise ValueError("; ".join(complaints(error, entry))) from error


def _beyond(facts: dict[str, Any], tier: str) -> dict[str, Any] | None:
    """The price of long calls (calls with more input tokens than a limit), from an entry of LiteLLM's file. None if the
    entry has no such price. `tier`: the suffix of the service tier in the entry's keys. Raises ValueError."""
    above = min((int(match[1]) for name in facts if (match := _ABOVE.match(name))), default=None)
    if above is None or (part := _whole(_classes(facts, f"_above_{above}k_tokens{tier}"))) is None:
        return None
    return {"tokens": above * 1000, **part}


def _tiers(facts: dict[str, Any]) -> dict[str, Any]:
    """The prices and price factors of an entry's service tiers. Raises ValueError."""
    found: dict[str, Any] = {}
    for tier in TIERS:
        if part := _whole(_classes(facts, f"_{tier}")):
            found[tier] = part
            if beyond := _beyond(facts, f"_{tier}"):
                found[tier]["beyond"] = beyond
    special = facts.get("provider_specific_entry")
    if isinstance(special, dict):
        found |= {name: Decimal(str(special[name])) for name in FACTORS if isinstance(special.get(name), int | float)}
    return found


def _whole(part: dict[str, Any]) -> dict[str, Any] | None:
    """`part`, if it has a price of input and a price of output; otherwise None."""
    return part if {"input", "output"} <= part.keys() else None


def _classes(facts: dict[str, Any], suffix: str) -> dict[str, Decimal]:
    """The prices, in USD per 1M tokens, of all token classes whose keys end with `suffix`. Raises ValueError."""
    found = {}
    for ours, theirs in CLASSES.items():
        value = facts.get(theirs + suffix)
        if value is None:
            continue
        try:
            usd = Decimal(str(value)) * 10**6
        except InvalidOperation:
            raise ValueError(f"{theirs}{suffix}: must be a number, not {value!r}") from None
        if not usd.is_finite() or usd < 0:
            raise ValueError(f"{theirs}{suffix}: must not be negative, but is {value!r}")
        if not usd and ours.startswith("cache_write"):
            continue  # in the map, 0 means no extra charge for writing; it does not mean that these tokens are free
        # The map's figures were computed with floats, so some have rounding errors far below a pico-dollar.
        found[ours] = Decimal(f"{usd.quantize(Decimal('0.000001')).normalize():f}")
    return found


def _differences(ours: ListedPrice, theirs: ListedPrice) -> dict[str, tuple[Any, Any]]:
    """The fields in which the two entries differ: field → (old, new). A field that LiteLLM's file lacks does not count.
    Raises ValueError if a change is too large to be plausible."""
    differs = {}
    for name in COMPARED:
        was, now = getattr(ours, name), getattr(theirs, name)
        if now is None or _same(name, ours, was, now):
            continue
        if name in ("input", "output") and not was <= now * MOST_CHANGE <= was * MOST_CHANGE**2:
            raise ValueError(
                f"{CLASSES[name]}: went from {was:f} to {now:f} USD per 1M tokens, more than {MOST_CHANGE}-fold; "
                "if that is true, give it as backends.price"
            )
        differs[name] = (_plain(was), _plain(now))
    return differs


def _same(name: str, ours: ListedPrice, was: Any, now: Any) -> bool:
    if name == "service_tiers":
        return all(_covered(was.get(tier), value) for tier, value in now.items())
    if was is not None or name in ("beyond", "batch"):
        return _covered(was, now)
    # A token class without a price has the price of its parent class.
    return bool(now == (ours.output if name in ("reasoning", "audio", "image") else ours.input))


def _covered(was: Any, now: Any) -> bool:
    """Return whether `was` already has the values of `now`. Only fields that are set in `now` are compared."""
    if isinstance(now, Classes) and isinstance(was, Classes):
        return all(_covered(getattr(was, name), value) for name, value in now if value is not None)
    return bool(was == now)


def _kept(ours: ListedPrice, theirs: ListedPrice) -> ListedPrice:
    """The gateway's entry with the prices of LiteLLM's file. Names and capabilities stay the gateway's."""
    fresh = {name: value for name in COMPARED if (value := getattr(theirs, name)) is not None}
    fresh["service_tiers"] = {**ours.service_tiers, **theirs.service_tiers}
    return ours.model_copy(update={**fresh, "as_of": theirs.as_of, "source": theirs.source or ours.source})


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dict):
        return {name: _plain(value) for name, value in value.items()}
    return None if value is None else value.model_dump(mode="json", exclude_none=True)
