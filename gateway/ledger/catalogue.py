"""The packaged list of public models, `prices.json`: its shape, and how a backend finds its entry there.

JSON, because every worker reads it at its start: as YAML it took eight times as long, and memory that stayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import Field

from gateway.domain.backend import Backend, Capability
from gateway.domain.policy import Section
from gateway.domain.price import Price
from gateway.domain.units import Usd

PACKAGED = Path(__file__).with_name("prices.json")

_DATED = re.compile(r"([-@]\d{4}-\d{2}-\d{2}|[-@]\d{8})$")
"""gpt-4o-2024-08-06, claude-sonnet-4-5-20250929, claude-sonnet-4-5@20250929."""
_PACKING = re.compile(r"[-_.](awq|gptq|gguf|fp8|fp4|nvfp4|bnb|int[48]|w[48]a(8|16)|\d+bit|i?q\d(_\w+)*)$")
"""How weights were shrunk; it changes neither name nor window."""


class Classes(Section):
    """USD per 1M tokens."""

    input: Usd
    cached_input: Usd | None = None
    cache_write_5m: Usd | None = None
    cache_write_1h: Usd | None = None
    output: Usd
    reasoning: Usd | None = None
    audio: Usd | None = None

    def price(self, source: str, as_of: str, beyond: tuple[int, Price] | None = None) -> Price:
        optional = ("cached_input", "cache_write_5m", "cache_write_1h", "reasoning", "audio")
        classes: dict[str, Decimal] = {name: usd for name in optional if (usd := getattr(self, name)) is not None}
        price = Price.per_million(self.input, self.output, source=source, as_of=as_of, **classes)
        return replace(price, beyond=beyond)


class Beyond(Classes):
    """What every token costs in a call of more than `tokens` input tokens."""

    tokens: int = Field(gt=0)


class Listed(Classes):
    """One model of one provider."""

    provider: str
    model: str
    aliases: tuple[str, ...] = ()
    beyond: Beyond | None = None
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
    """Nobody else serves these names, so they are known behind any address."""
    source: str
    """The page to check its figures against; a contract may say otherwise."""

    def serves(self, host: str) -> bool:
        return any(host == known or (known[0] == "." and host.endswith(known)) for known in self.hosts)


class Weights(Section):
    """An open model, whoever serves it: what a server can do beyond text depends on how it was started."""

    model: str
    window_tokens: int = Field(gt=0)


class Listing(Section):
    """The file: USD per 1M tokens, standard tier, global endpoints. A backend's own `price` always wins."""

    as_of: date
    via: str
    """The list that these figures are from, which had them from the providers; litellm's has the MIT licence."""
    providers: dict[str, Provider]
    models: tuple[dict[str, Any], ...]
    """Each a `Listed`, made when somebody asks: of many models few are called."""
    weights: tuple[Weights, ...]
    hypothetical: dict[str, str]
    """Tier → whose price stands in for a simulated backend's, in figures marked as hypothetical only."""


class Register:
    """Finds entries by backend or by name, tolerant of dates, provider prefixes, capitals and dots."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self._models: dict[tuple[str, str], dict[str, Any]] = {}
        for facts in listing.models:
            for name in (facts["model"], *facts.get("aliases", ())):
                self._models[facts["provider"], _plain(name)] = facts

    @classmethod
    def load(cls, path: Path = PACKAGED) -> Register:
        return cls(Listing.model_validate(orjson.loads(path.read_bytes())))

    @property
    def models(self) -> Iterator[Listed]:
        return (Listed.model_validate(facts) for facts in self.listing.models)

    def find(self, backend: Backend) -> Listed | None:
        """The list that applies where `backend` is called; None when nobody knows what it costs there."""
        if backend.kind in ("local", "simulated"):
            return None
        for provider, name in self._readings(backend):
            for candidate in _spellings(name):
                if facts := self._models.get((provider, candidate)):
                    return Listed.model_validate(facts)
        return None

    def named(self, name: str) -> Listed | None:
        """`provider/model`, or a model that only one provider serves."""
        provider, _, model = name.partition("/")
        exclusive = [(known, name) for known, facts in self.listing.providers.items() if facts.exclusive]
        for known, rest in ((provider, model), *exclusive):
            for candidate in _spellings(rest):
                if facts := self._models.get((known, candidate)):
                    return Listed.model_validate(facts)
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
        """(provider, model) that the backend may mean: where it is called, then what its name says."""
        host = urlsplit(backend.base_url).hostname or ""
        for provider, facts in self.listing.providers.items():
            if facts.serves(host):
                yield from ((provider, name) for name in _without(facts.prefixes, backend.model))
                return
        for provider, facts in self.listing.providers.items():
            prefixed = [name for name in _without(facts.prefixes, backend.model) if name != backend.model]
            if prefixed and (facts.exclusive or backend.kind == "litellm"):
                yield from ((provider, name) for name in prefixed)
            elif facts.exclusive:
                yield provider, backend.model


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
