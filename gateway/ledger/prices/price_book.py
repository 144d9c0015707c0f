"""Looks up the price of each backend, and facts about its model in the price list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from gateway.domain.backend import Backend, PriceEntry, TierEntry
from gateway.domain.money.price import Price
from gateway.domain.money.price_classes import Classes, ServiceTier, TierClasses, at_tiers, rounded_up, times
from gateway.domain.units import PICO_PER_USD
from gateway.ledger.prices.catalogue import PACKAGED, Catalogue, ListedPrice
from gateway.ledger.prices.discounts import discounted
from gateway.settings.gateway import Settings
from gateway.settings.prices import PriceSettings

TOKENS_PER_SECOND = Decimal(1000)
"""Assumed throughput in tokens per second of a machine without `tokens_per_second`: a 7B model, batched, on one GPU."""
LOCAL_TOKENS_PER_SECOND = Decimal(25)
"""Assumed throughput in tokens per second for `kind: local`: a small model on one CPU thread."""
READING_SHARE = Decimal("0.1")
"""Cost of an input token, divided by the cost of an output token. A machine reads tokens about ten times as fast as it
generates them."""

_MOST_NAMES = 4096


class PriceBook:
    """Implements `PriceList`. A backend's price in gateway.yaml has priority over the price list. An unknown price is
    None, never 0."""

    def __init__(
        self,
        register: Catalogue,
        terms: PriceSettings = PriceSettings(),  # noqa: B008 - immutable
        *,
        today: Callable[[], date] = lambda: datetime.now(UTC).date(),
    ) -> None:
        """`today()`: returns the current day in UTC."""
        self._register, self._discounts, self._today = register, terms.discounts, today
        self._dated = register.dated or any(one.valid_from or one.valid_until for one in terms.discounts)
        self._known: dict[int, tuple[Backend, Price | None]] = {}
        """Id of a backend object → the object, which keeps the id unique, and its price."""
        self._day: date | None = None
        self._measured: dict[str, Decimal] = {}
        self._by_name: dict[str, Price | None] = {}
        self._prepaid: frozenset[str] = frozenset()

    @classmethod
    def load(cls, path: Path = PACKAGED) -> PriceBook:
        """A price book with the packaged list only."""
        return cls(Catalogue.load(path))

    @classmethod
    def of(cls, settings: Settings) -> PriceBook:
        """A price book with the packaged list, the operator's entries and the discounts. Raises ConfigError."""
        return cls(Catalogue.load(own=settings.paths.prices), settings.config.prices)

    def price(self, backend: Backend) -> Price | None:
        """The price of the backend's tokens. None if the price is unknown, or if the backend is simulated."""
        if self._dated and self._day != (today := self._today()):
            self._begin_day(today)
        known = self._known.get(id(backend))
        if known is None:
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            known = self._known[id(backend)] = backend, self._price(backend)
        return known[1]

    def listed(self, model: str) -> Price | None:
        """The list price of `model`, which is a model's name or `provider/model`. None if unknown."""
        if self._dated and self._day != (today := self._today()):
            self._begin_day(today)
        try:
            return self._by_name[model]
        except KeyError:
            found = self._register.named(model, self._today())
            if len(self._by_name) >= _MOST_NAMES:  # patterns in policies let clients choose names
                self._by_name.clear()
            price = self._by_name[model] = None if found is None else self._listed(found)
            return price

    def _begin_day(self, today: date) -> None:
        """Delete the cached prices at the beginning of a day, because prices and discounts may change with the date."""
        self._known.clear()
        self._by_name.clear()
        self._day = today

    def learn(self, measured: Mapping[str, Decimal]) -> None:
        """Store measured throughputs (backend → tokens per second). Backends that are not in `measured` keep their last
        throughput."""
        for name, rate in measured.items():
            if self._measured.get(name) != rate:
                self._measured[name] = rate
                self._known = {each: known for each, known in self._known.items() if known[0].name != name}

    def prepay(self, backends: frozenset[str]) -> None:
        """Store the names of the backends whose calls are already paid by a commitment (see `commitments.py`)."""
        self._prepaid = backends

    def prepaid(self, backend: Backend) -> bool:
        """Return whether calls of `backend` are already paid by a commitment that is not used up."""
        return backend.name in self._prepaid

    def provider(self, backend: Backend) -> str:
        """The provider of `backend`; empty if unknown."""
        return "" if backend.facts.own_machine else self._register.provider(backend)

    def _price(self, backend: Backend) -> Price | None:
        if backend.simulated:
            return None
        if backend.price is not None:
            return _own(backend, backend.price, self._measured.get(backend.name))
        on = self._today()
        listed = self._register.find(backend, on)
        if listed is None:
            return None
        price = self._listed(listed)
        if (factor := self._register.factor(listed, backend)) != 1:
            price = times(price, factor, f", region × {factor}")
        return discounted(price, backend, listed.provider, self._discounts, on)

    def complete(self, backend: Backend) -> Backend:
        """Add to `backend` the context window, the longest answer and the capabilities from the price list, where
        gateway.yaml does not set them."""
        listed = self._register.find(backend, self._today())
        window = listed.window_tokens if listed else self._register.window(backend)
        found: dict[str, object] = {}
        if backend.window_tokens is None and window is not None:
            found["window_tokens"] = window
        if listed and backend.max_output_tokens is None and listed.max_output_tokens is not None:
            found["max_output_tokens"] = listed.max_output_tokens
        if listed and "capabilities" not in backend.model_fields_set and listed.capabilities:
            found["capabilities"] = listed.capabilities
        return backend.model_copy(update=found) if found else backend

    def hypothetical(self, backend: Backend) -> tuple[Price, str] | None:
        """The list price and name of a real model that represents the simulated `backend`; None if there is none. Use
        the price only in figures that are marked as hypothetical."""
        return self.stand_in(backend.model, backend.tier) if backend.simulated else None

    def stand_in(self, model: str, tier: str) -> tuple[Price, str] | None:
        """The list price and name of the model that represents a simulated backend. This is `model`, or else the list's
        example for `tier`. None if the list has neither."""
        on, stand_ins = self._today(), self._register.listing.hypothetical
        listed = self._register.named(model, on) or self._register.named(stand_ins.get(tier, ""), on)
        return None if listed is None else (self._listed(listed), listed.name)

    def entries(self) -> tuple[tuple[ListedPrice, Price], ...]:
        """All entries of the list with their prices, source pages and dates."""
        listing = self._register.listing
        return tuple(
            (
                listed.model_copy(
                    update={
                        "source": listed.source or self._page(listed.provider),
                        "as_of": listed.as_of or listing.as_of,
                    }
                ),
                self._listed(listed),
            )
            for listed in self._register.models
        )

    def _page(self, provider: str) -> str:
        facts = self._register.listing.providers.get(provider)
        return "" if facts is None else facts.source

    def _listed(self, listed: ListedPrice) -> Price:
        listing = self._register.listing
        as_of = (listed.as_of or listing.as_of).isoformat()
        source = f"list {listed.name}"
        above, provider = listed.beyond, listing.providers.get(listed.provider)
        beyond = None if above is None else (above.tokens, above.price(source, as_of))
        tiers = listed.service_tiers
        if listed.batch is not None:
            tiers = {"batch": TierClasses(**listed.batch.model_dump()), **tiers}
        if provider is not None:
            tiers = {**provider.service_tiers, **tiers}
        choosable = () if provider is None else provider.choosable_tiers
        return at_tiers(listed.price(source, as_of, beyond), tiers, choosable)


def _own(backend: Backend, entry: PriceEntry, measured: Decimal | None) -> Price:
    if entry.machine_hour_usd is not None:
        return _machine(entry.machine_hour_usd, measured or prior(backend), "measured" if measured else "assumed")
    assert entry.input is not None
    assert entry.output is not None
    price = Classes(**entry.model_dump(include=set(Classes.model_fields))).price("gateway.yaml", "")
    own = {name: _tier(tier) for name, tier in entry.service_tiers.items()}
    return at_tiers(price, own)


def _tier(tier: Decimal | TierEntry) -> ServiceTier:
    return tier if isinstance(tier, Decimal) else TierClasses(**tier.model_dump())


def prior(backend: Backend) -> Decimal:
    """The throughput of the backend's machine, in tokens per second, that is assumed before any measurement."""
    if backend.price is not None and backend.price.tokens_per_second is not None:
        return Decimal(str(backend.price.tokens_per_second))
    return LOCAL_TOKENS_PER_SECOND if backend.facts.own_machine else TOKENS_PER_SECOND


def _machine(hour_usd: Decimal, rate: Decimal, how: str) -> Price:
    """The price per token of a machine with an hourly price, in pico-dollars, rounded up. `rate`: tokens per second.
    `how`: origin of the rate, for the text about the price's source."""
    output = hour_usd * PICO_PER_USD / 3600 / rate
    return Price(
        input=rounded_up(output * READING_SHARE),
        output=rounded_up(output),
        every_tier=True,
        source=f"gateway.yaml, {hour_usd} USD per machine hour at {rate:f} tokens/s, {how}",
    )
