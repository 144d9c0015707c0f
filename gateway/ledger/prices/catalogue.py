"""The price list of public models (`prices.json`) and the operator's own price entries. Defines the format of both
files and finds entries in them.

The files are JSON because every worker reads them when it starts. YAML needed eight times the time, and more memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import Field, ValidationError

from gateway.domain.backend import Backend, Capability
from gateway.domain.money.price_classes import Classes, LongContext, ServiceTiers
from gateway.domain.section import Section
from gateway.settings.files import ConfigError

PACKAGED = Path(__file__).with_name("prices.json")

_DATED = re.compile(r"([-@]\d{4}-\d{2}-\d{2}|[-@]\d{8})$")
"""Matches a date suffix, as in gpt-4o-2024-08-06, claude-sonnet-4-5-20250929, claude-sonnet-4-5@20250929."""
_PACKING = re.compile(r"[-_.](awq|gptq|gguf|fp8|fp4|nvfp4|bnb|int[48]|w[48]a(8|16)|\d+bit|i?q\d(_\w+)*)$")
"""Matches a suffix that names how the weights were quantised. Quantising does not change the context window."""


class ListedPrice(Classes):
    """An entry of the price list: one model of one provider."""

    provider: str
    model: str
    aliases: tuple[str, ...] = ()
    beyond: LongContext | None = None
    batch: Classes | None = None
    """Prices in the provider's own batches. Not used for the gateway's batches, because the gateway sends their lines
    as single requests at the usual price."""
    service_tiers: ServiceTiers = Field(default_factory=dict)
    """Service tier (as in `Usage.service_tier`) → its prices, or a factor on all standard prices."""
    regions: dict[str, Decimal] = Field(default_factory=dict)
    """Region → factor on all prices. The region of a call is the beginning of the provider's host name, or else the
    backend's `region`. An entry such as `eu` also applies to regions that begin with `eu-`."""
    valid_from: date | None = None
    """First day on which the price is valid. If a model has several entries, the latest valid entry applies."""
    window_tokens: int | None = Field(None, gt=0)
    max_output_tokens: int | None = Field(None, gt=0)
    capabilities: frozenset[Capability] = frozenset()
    source: str = ""
    as_of: date | None = None

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


class Provider(Section):
    """A provider in the price list."""

    hosts: tuple[str, ...]
    """Host names to which the provider's prices apply. A leading dot means any subdomain."""
    prefixes: tuple[str, ...]
    """Prefixes that may stand before a model's name."""
    exclusive: bool = False
    """Whether no other provider serves models with these names. Then the models are recognised at any address."""
    source: str
    """The web page with its public prices."""
    service_tiers: dict[str, Decimal] = Field(default_factory=dict)
    """Service tier → factor on the prices, for models of the provider that have no tiers of their own."""
    choosable_tiers: tuple[str, ...] = ()
    """Service tiers that the provider may use for a call that names no tier, if the operator's account at the provider
    is set so.
    """

    def serves(self, host: str) -> bool:
        return any(host == known or (known[0] == "." and host.endswith(known)) for known in self.hosts)


class Weights(Section):
    """An open model. Anyone can run its weights on a server, and the options of that server decide whether the model
    accepts images."""

    model: str
    window_tokens: int = Field(gt=0)


class Listing(Section):
    """The content of the price list. Prices are in USD per 1M tokens, for the standard service tier and global
    endpoints. A backend's `price` in gateway.yaml has priority over the list."""

    as_of: date
    via: str
    """The list from which the figures of this file were taken. litellm's list has the MIT licence."""
    providers: dict[str, Provider]
    models: tuple[dict[str, Any], ...]
    """Model entries. An entry becomes a `ListedPrice` only when it is looked up, because a gateway uses few of the many
    models."""
    weights: tuple[Weights, ...]
    hypothetical: dict[str, str]
    """Tier → model whose price is used for simulated backends. The price is used only in figures that are marked as
    hypothetical."""


class OwnPrices(Section):
    """The content of the operator's price file. Its entries replace the packaged entries for the same model."""

    as_of: date
    via: str
    models: tuple[ListedPrice, ...]


def load_own(path: Path) -> OwnPrices | None:
    """Read the operator's price file; None if the file does not exist. Raises ConfigError, which names the file and the
    entry."""
    try:
        facts = orjson.loads(path.read_bytes())
        return OwnPrices.model_validate(facts)
    except FileNotFoundError:
        return None
    except (OSError, orjson.JSONDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}"]) from error
    except ValidationError as error:
        raise ConfigError([f"{path}: {problem}" for problem in complaints(error, facts)]) from error


def complaints(error: ValidationError, facts: Any) -> Iterator[str]:
    """Yield one line of text for each error, such as `models.3 (openai/gpt-9).input: …`."""
    models = facts.get("models") if isinstance(facts, dict) else None
    for problem in error.errors(include_url=False):
        steps = list(map(str, problem["loc"]))
        match problem["loc"]:
            case ("models", int(number), *_) if isinstance(models, list) and isinstance(models[number], dict):
                entry = models[number]
                steps[1] += f" ({entry.get('provider')}/{entry.get('model')})"
        cause = problem.get("ctx", {}).get("error")
        yield f"{'.'.join(steps)}: {cause or problem['msg']}"


class Catalogue:
    """Finds entries of the price list for a backend or for a model's name. Names that differ only in dates, provider
    prefixes, capitals or dots count as equal."""

    def __init__(self, listing: Listing, own: OwnPrices | None = None) -> None:
        self.listing = listing
        self._own = own
        self._models: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for facts in (*listing.models, *self._above()):
            for name in (facts["model"], *facts.get("aliases", ())):
                self._models.setdefault((facts["provider"], _plain(name)), []).append(facts)
        self.dated = any("valid_from" in facts for several in self._models.values() for facts in several)
        """Whether any price in the list depends on the day."""

    @classmethod
    def load(cls, path: Path = PACKAGED, own: Path | None = None) -> Catalogue:
        """Read the packaged list and the operator's file. `own`: path of the operator's file. Raises ConfigError if
        this file is invalid."""
        listing = Listing.model_validate(orjson.loads(path.read_bytes()))
        return cls(listing, load_own(own) if own is not None else None)

    def _above(self) -> Iterator[dict[str, Any]]:
        if self._own is None:
            return
        for listed in self._own.models:
            yield listed.model_dump(exclude_unset=True) | {"as_of": listed.as_of or self._own.as_of}

    @property
    def models(self) -> Iterator[ListedPrice]:
        """Yield all entries. The operator's entries replace packaged ones for the same model and day."""
        every = (ListedPrice.model_validate(facts) for facts in (*self.listing.models, *self._above()))
        return iter({(one.name, one.valid_from): one for one in every}.values())

    def find(self, backend: Backend, on: date | None = None) -> ListedPrice | None:
        """The entry for `backend` that is valid on the day `on`; None if there is none."""
        if backend.facts.own_machine:
            return None
        return next((listed for reading in self._readings(backend) if (listed := self._spelt(*reading, on))), None)

    def named(self, name: str, on: date | None = None) -> ListedPrice | None:
        """The entry with this `name` (`provider/model`); None if there is none. The name may lack the provider if only
        one provider has the model."""
        provider, _, model = name.partition("/")
        exclusive = [(known, name) for known, facts in self.listing.providers.items() if facts.exclusive]
        return next(
            (listed for reading in ((provider, model), *exclusive) if (listed := self._spelt(*reading, on))), None
        )

    def provider(self, backend: Backend) -> str:
        """The provider of `backend`; empty if the list contains neither its host nor its model."""
        if (listed := self.find(backend)) is not None:
            return listed.provider
        host = urlsplit(backend.base_url).hostname or ""
        return next((name for name, facts in self.listing.providers.items() if facts.serves(host)), "")

    def factor(self, listed: ListedPrice, backend: Backend) -> Decimal:
        """The factor by which all prices of `listed` are multiplied in the region of `backend`."""
        premium = backend.facts.regional_factor
        if premium and "global" not in (backend.region, backend.model.partition(".")[0]):
            return premium
        host = urlsplit(backend.base_url).hostname or ""
        known = self.listing.providers[listed.provider].hosts if listed.provider in self.listing.providers else ()
        region = backend.region if host not in known and not any(host.endswith(f".{one}") for one in known) else ""
        region = next((host.removesuffix(f".{one}") for one in known if host.endswith(f".{one}")), region)
        found = (name for name in listed.regions if region == name or region.startswith(f"{name}-"))
        return listed.regions.get(next(found, ""), Decimal(1))

    def _spelt(self, provider: str, name: str, on: date | None) -> ListedPrice | None:
        for candidate in _spellings(name):
            entries = [ListedPrice.model_validate(facts) for facts in self._models.get((provider, candidate), ())]
            begun = [entry for entry in entries if entry.valid_from is None or on is None or entry.valid_from <= on]
            if begun:
                return max(reversed(begun), key=lambda entry: entry.valid_from or date.min)
        return None

    def window(self, backend: Backend) -> int | None:
        """The context window, in tokens, of an open model that runs at an address outside the price list; None if
        unknown."""
        name = backend.model.rsplit("/", 1)[-1].lower()
        while shorter := _PACKING.sub("", name):
            if shorter == name:
                break
            name = shorter
        return next((w.window_tokens for w in self.listing.weights if fnmatchcase(name, w.model)), None)

    def _readings(self, backend: Backend) -> Iterator[tuple[str, str]]:
        """Yield the pairs (provider, model) that may describe the backend. They are derived from the backend's address
        or, if the address is unknown, from the name of the model."""
        model = re.sub(backend.facts.beside_name, "", backend.model) if backend.facts.beside_name else backend.model
        host = urlsplit(backend.base_url).hostname or ""
        for provider, facts in self.listing.providers.items():
            if provider == backend.facts.prices or (not backend.facts.prices and facts.serves(host)):
                yield from ((provider, name) for name in _without(facts.prefixes, model))
                return
        for provider, facts in self.listing.providers.items():
            prefixed = [name for name in _without(facts.prefixes, model) if name != model]
            if prefixed and (facts.exclusive or backend.facts.prefix_names_provider):
                yield from ((provider, name) for name in prefixed)
            elif facts.exclusive:
                yield provider, model


def _without(prefixes: Iterable[str], name: str) -> Iterator[str]:
    for prefix in prefixes:
        if name.lower().startswith(prefix + "/"):
            yield from _without(prefixes, name[len(prefix) + 1 :])
    yield name


def _plain(name: str) -> str:
    return name.lower().replace(".", "-").removesuffix("-latest")


def _spellings(name: str) -> Iterator[str]:
    """Yield the spellings of a model's `name` for the search, best first. The full name comes first. Shorter names
    follow: without the date, or only the base model of a fine-tuned model."""
    yield _plain(name)
    if name.startswith("ft:"):
        yield _plain(":".join(name.split(":")[:2]))
    elif (undated := _DATED.sub("", name)) != name:
        yield _plain(undated)
