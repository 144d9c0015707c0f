"""The price list of public models (`prices.json`) and the operator's entries: format and look-up.

JSON, because every worker reads it at its start: as YAML it took eight times as long, and memory that stayed.
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
from gateway.domain.policy import Section
from gateway.settings.files import ConfigError

PACKAGED = Path(__file__).with_name("prices.json")

_DATED = re.compile(r"([-@]\d{4}-\d{2}-\d{2}|[-@]\d{8})$")
"""gpt-4o-2024-08-06, claude-sonnet-4-5-20250929, claude-sonnet-4-5@20250929."""
_PACKING = re.compile(r"[-_.](awq|gptq|gguf|fp8|fp4|nvfp4|bnb|int[48]|w[48]a(8|16)|\d+bit|i?q\d(_\w+)*)$")
"""How weights were shrunk; it changes neither name nor window."""


class ListedPrice(Classes):
    """One model of one provider."""

    provider: str
    model: str
    aliases: tuple[str, ...] = ()
    beyond: LongContext | None = None
    batch: Classes | None = None
    """In the provider's own batches. The gateway sends its batches as single requests, which cost the usual price."""
    service_tiers: ServiceTiers = Field(default_factory=dict)
    """Tier, as `Usage.service_tier` names it → its prices, or a factor on every usual price."""
    regions: dict[str, Decimal] = Field(default_factory=dict)
    """Region → factor on every price there. Where a provider's host begins with a region, that decides."""
    valid_from: date | None = None
    """First day; of several entries for a model the latest that has begun holds."""
    window_tokens: int | None = Field(None, gt=0)
    max_output_tokens: int | None = Field(None, gt=0)
    capabilities: frozenset[Capability] = frozenset()
    source: str = ""
    as_of: date | None = None

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


class Provider(Section):
    hosts: tuple[str, ...]
    """Where its list applies; a leading dot: any subdomain."""
    prefixes: tuple[str, ...]
    """What may stand before a model's name."""
    exclusive: bool = False
    """Only this provider serves models with these names, so they are recognised at any address."""
    source: str
    """The page to check its figures against; a contract may say otherwise."""
    service_tiers: dict[str, Decimal] = Field(default_factory=dict)
    """Tiers of all its models that do not say otherwise."""
    choosable_tiers: tuple[str, ...] = ()
    """Tiers at which it may serve a call that names none, as a project's settings there can say."""

    def serves(self, host: str) -> bool:
        return any(host == known or (known[0] == "." and host.endswith(known)) for known in self.hosts)


class Weights(Section):
    """An open model, at any server; its capabilities beyond text depend on how the server was started."""

    model: str
    window_tokens: int = Field(gt=0)


class Listing(Section):
    """The file: USD per 1M tokens, standard tier, global endpoints. A backend's own `price` always wins."""

    as_of: date
    via: str
    """The list that these figures are from, which had them from the providers; litellm's has the MIT licence."""
    providers: dict[str, Provider]
    models: tuple[dict[str, Any], ...]
    """Each becomes a `ListedPrice` when it is looked up, because few of many models are called."""
    weights: tuple[Weights, ...]
    hypothetical: dict[str, str]
    """Tier → the model whose price stands in for a simulated backend's, only in figures marked as hypothetical."""


class OwnPrices(Section):
    """The operator's file: entries that stand above the packaged ones of the same model."""

    as_of: date
    via: str
    models: tuple[ListedPrice, ...]


def load_own(path: Path) -> OwnPrices | None:
    """None when there is no such file. Raises ConfigError, which names file and entry."""
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
    """`models.3 (openai/gpt-9).input: …`, a line for each mistake."""
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
    """Finds entries by backend or by name, tolerant of dates, provider prefixes, capitals and dots."""

    def __init__(self, listing: Listing, own: OwnPrices | None = None) -> None:
        self.listing = listing
        self._own = own
        self._models: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for facts in (*listing.models, *self._above()):
            for name in (facts["model"], *facts.get("aliases", ())):
                self._models.setdefault((facts["provider"], _plain(name)), []).append(facts)
        self.dated = any("valid_from" in facts for several in self._models.values() for facts in several)
        """Does it matter when one asks?"""

    @classmethod
    def load(cls, path: Path = PACKAGED, own: Path | None = None) -> Catalogue:
        """Raises ConfigError for the operator's own file."""
        listing = Listing.model_validate(orjson.loads(path.read_bytes()))
        return cls(listing, load_own(own) if own is not None else None)

    def _above(self) -> Iterator[dict[str, Any]]:
        if self._own is None:
            return
        for listed in self._own.models:
            yield listed.model_dump(exclude_unset=True) | {"as_of": listed.as_of or self._own.as_of}

    @property
    def models(self) -> Iterator[ListedPrice]:
        """Every entry that no other of the same model and day stands above."""
        every = (ListedPrice.model_validate(facts) for facts in (*self.listing.models, *self._above()))
        return iter({(one.name, one.valid_from): one for one in every}.values())

    def find(self, backend: Backend, on: date | None = None) -> ListedPrice | None:
        """The list price that applies where `backend` is called; None if unknown."""
        if backend.facts.own_machine:
            return None
        return next((listed for reading in self._readings(backend) if (listed := self._spelt(*reading, on))), None)

    def named(self, name: str, on: date | None = None) -> ListedPrice | None:
        """`provider/model`, or a model that only one provider serves."""
        provider, _, model = name.partition("/")
        exclusive = [(known, name) for known, facts in self.listing.providers.items() if facts.exclusive]
        return next(
            (listed for reading in ((provider, model), *exclusive) if (listed := self._spelt(*reading, on))), None
        )

    def provider(self, backend: Backend) -> str:
        """The provider of `backend`; empty if the list has neither its host nor its model."""
        if (listed := self.find(backend)) is not None:
            return listed.provider
        host = urlsplit(backend.base_url).hostname or ""
        return next((name for name, facts in self.listing.providers.items() if facts.serves(host)), "")

    def factor(self, listed: ListedPrice, backend: Backend) -> Decimal:
        """What the region in which `backend` is called multiplies its list's prices by."""
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
        """The context window of open weights behind an address that no list covers."""
        name = backend.model.rsplit("/", 1)[-1].lower()
        while shorter := _PACKING.sub("", name):
            if shorter == name:
                break
            name = shorter
        return next((w.window_tokens for w in self.listing.weights if fnmatchcase(name, w.model)), None)

    def _readings(self, backend: Backend) -> Iterator[tuple[str, str]]:
        """(provider, model) that the backend may mean: first by its address, then by its model's name."""
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
    """As it stands first: a dated model may have a price of its own. A tuned model costs what its base lists."""
    yield _plain(name)
    if name.startswith("ft:"):
        yield _plain(":".join(name.split(":")[:2]))
    elif (undated := _DATED.sub("", name)) != name:
        yield _plain(undated)
