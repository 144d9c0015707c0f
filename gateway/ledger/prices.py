"""What each backend's tokens cost, and what the packaged list knows about its model."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from pathlib import Path

from gateway.domain.backend import Backend, PriceEntry
from gateway.domain.price import Price
from gateway.domain.units import PICO_PER_USD
from gateway.ledger.catalogue import PACKAGED, Classes, Listed, Register

TOKENS_PER_SECOND = Decimal(1000)
"""What a machine is taken to yield when `tokens_per_second` is not given: a 7B model, batched, on one GPU."""
LOCAL_TOKENS_PER_SECOND = Decimal(25)
"""The same for `kind: local`: a small model on one CPU thread."""
READING_SHARE = Decimal("0.1")
"""A machine reads input some ten times as fast as it writes output, so an input token costs a tenth."""


class Catalogue:
    """`PriceList`: the backend's own price, else the list's; unknown stays None, never 0."""

    def __init__(self, register: Register) -> None:
        self._register = register
        self._known: dict[str, tuple[Backend, Price | None]] = {}

    @classmethod
    def load(cls, path: Path = PACKAGED) -> Catalogue:
        return cls(Register.load(path))

    def price(self, backend: Backend) -> Price | None:
        """None: nobody knows, or the backend is simulated, which costs nothing that could be added up."""
        known = self._known.get(backend.name)
        if known is not None and known[0] is backend:
            return known[1]
        price = self._price(backend)
        self._known[backend.name] = (backend, price)
        return price

    def _price(self, backend: Backend) -> Price | None:
        if backend.kind == "simulated":
            return None
        if backend.price is not None:
            return _own(backend, backend.price)
        listed = self._register.find(backend)
        return None if listed is None else self._listed(listed)

    def complete(self, backend: Backend) -> Backend:
        """`backend` with window, longest answer and capabilities from the list where the file left them open."""
        listed = self._register.find(backend)
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
        """For a simulated backend: a real model's list price and its name, for figures marked hypothetical only."""
        return self.stand_in(backend.model, backend.tier) if backend.kind == "simulated" else None

    def stand_in(self, model: str, tier: str) -> tuple[Price, str] | None:
        """The list price of `model` if it is a public model's name, else of the one that stands for `tier`."""
        listed = self._register.named(model) or self._register.named(self._register.listing.hypothetical.get(tier, ""))
        return None if listed is None else (self._listed(listed), listed.name)

    def entries(self) -> tuple[tuple[Listed, Price], ...]:
        """The whole list, every entry with its page and date, for people to read."""
        listing = self._register.listing
        return tuple(
            (
                listed.model_copy(
                    update={
                        "source": listed.source or listing.providers[listed.provider].source,
                        "as_of": listed.as_of or listing.as_of,
                    }
                ),
                self._listed(listed),
            )
            for listed in self._register.models
        )

    def _listed(self, listed: Listed) -> Price:
        listing = self._register.listing
        as_of = (listed.as_of or listing.as_of).isoformat()
        source = f"list {listed.name}"
        above = listed.beyond
        beyond = None if above is None else (above.tokens, above.price(source, as_of))
        return listed.price(source, as_of, beyond)


def _own(backend: Backend, entry: PriceEntry) -> Price:
    if entry.machine_hour_usd is not None:
        return _machine(backend, entry, entry.machine_hour_usd)
    assert entry.input is not None
    assert entry.output is not None
    return Classes(**entry.model_dump(exclude={"machine_hour_usd", "tokens_per_second"})).price("gateway.yaml", "")


def _machine(backend: Backend, entry: PriceEntry, hour_usd: Decimal) -> Price:
    """Rounded up to whole pico-dollars, so that a cheap machine is not free."""
    if entry.tokens_per_second is not None:
        rate = Decimal(str(entry.tokens_per_second))
    else:
        rate = LOCAL_TOKENS_PER_SECOND if backend.kind == "local" else TOKENS_PER_SECOND
    output = hour_usd * PICO_PER_USD / 3600 / rate
    return Price(
        input=_up(output * READING_SHARE),
        output=_up(output),
        source=f"gateway.yaml, {hour_usd} USD per machine hour at {rate} tokens/s",
    )


def _up(pico: Decimal) -> int:
    return int(pico.to_integral_value(ROUND_CEILING))
