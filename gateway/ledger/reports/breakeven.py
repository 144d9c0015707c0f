"""Computes from the ledger's traffic the volume above which an own machine is cheaper than a provider's API."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Connection, func, select

from gateway.domain.backend import Backend
from gateway.domain.units import PICO_PER_USD, usd_to_pico
from gateway.ledger.prices.price_book import READING_SHARE, prior
from gateway.ledger.reports.dimensions import column
from gateway.ledger.reports.formats import dollars
from gateway.ledger.store.entries import IDLE, entries, within
from gateway.ledger.store.sums import pico_sum, whole

HARDWARE = Path(__file__).with_name("hardware.json")
METHOD = (
    "Load: output tokens, and a tenth of the input tokens, since a machine reads about ten times as fast as it writes.",
    "Utilisation needed = price of an hour / (the machine's tokens a second x 3600 x the API's cost per token).",
    "Machines: as many as the busiest hour of the period needs, paid for all hours of the period.",
    "These figures do not show whether the smaller model is good enough; a hold-out does (learning.holdout).",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine for models of one size, with its hourly price and its throughput (tokens per second)."""

    name: str
    size: str
    hour_pico: int
    tokens_per_second: Decimal
    source: str


@dataclass(frozen=True, slots=True)
class Load:
    """The traffic of one hosted model. `tokens`: weighted tokens (see `METHOD`). `busiest`: weighted tokens in the
    busiest hour."""

    model: str
    requests: int
    tokens: Decimal
    cost_pico: int
    busiest: Decimal


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares the cost of a model's traffic at the provider's API with its cost on machines of one kind. `hours`:
    length of the period."""

    load: Load
    machine: Machine
    hours: Decimal

    @property
    def needed(self) -> Decimal:
        """The share of a machine's capacity that must be used before the machine is cheaper than the API. Above 1, the
        API is always cheaper."""
        return self.machine.hour_pico * self.load.tokens / (self.machine.tokens_per_second * 3600 * self.load.cost_pico)

    @property
    def utilisation(self) -> Decimal:
        """The share of the machines' total capacity that the traffic would use, on as many machines as the traffic
        needs."""
        return self.load.tokens / (self.machine.tokens_per_second * 3600 * self.hours * self.machines)

    @property
    def machines(self) -> int:
        return max(1, math.ceil(self.load.busiest / (self.machine.tokens_per_second * 3600)))

    @property
    def self_host_pico(self) -> int:
        return int(self.machine.hour_pico * self.machines * self.hours)

    @property
    def pays(self) -> bool:
        return self.self_host_pico < self.load.cost_pico


def hardware(billing: str, path: Path = HARDWARE) -> Iterator[Machine]:
    """Yield the machines of the packaged table that have a price for `billing`: on_demand, spot or reserved."""
    table = orjson.loads(path.read_bytes())
    costs = {entry["name"]: entry for entry in table["machines"] if billing in entry}
    for entry in table["throughput"]:
        if (cost := costs.get(entry["machine"])) is not None:
            hour_pico = usd_to_pico(Decimal(str(cost[billing])))
            source = f"{cost['source']} ({cost['as_of']}); {entry['source']} ({entry['as_of']})"
            yield Machine(cost["name"], entry["size"], hour_pico, Decimal(entry["tokens_per_second"]), source)


def owned(backends: Iterable[Backend], measured: Mapping[str, Decimal]) -> Iterator[Machine]:
    """Yield the machines that are backends in gateway.yaml. `measured`: backend → tokens per second, for backends with
    a measurement."""
    for backend in backends:
        if backend.price is not None and backend.price.machine_hour_usd:
            rate = measured.get(backend.name)
            how = "gateway.yaml, throughput " + ("assumed" if rate is None else "measured")
            hour_pico = usd_to_pico(backend.price.machine_hour_usd)
            yield Machine(backend.name, backend.model, hour_pico, rate or prior(backend), how)


def loads(
    connection: Connection, since: float, until: float, *, team: str | None = None, pattern: str = ""
) -> list[Load]:
    """The traffic of each hosted model with costs in `[since, until)` (Unix seconds), most expensive first. `pattern`:
    text that models' names must contain."""
    c = entries.c
    hour = column(entries, "hour", sqlite=connection.dialect.name == "sqlite").label("hour")
    sent = (
        c.input_tokens + c.cached_tokens + c.cache_write_5m_tokens + c.cache_write_1h_tokens
        + c.audio_input_tokens + c.image_input_tokens
    )  # fmt: skip
    came = c.output_tokens + c.reasoning_tokens + c.audio_tokens + c.image_tokens
    asked = [c.tier == "hosted", c.attempt > 0, c.kind != IDLE, c.simulated.is_(False), *within(since, until, team)]
    query = (
        select(c.model, hour, func.sum(c.attempts), func.sum(sent), func.sum(came), *pico_sum(c.cost_pico))
        .where(*asked, c.cost_pico > 0)
        .group_by(c.model, hour)
    )
    hours: dict[str, list[tuple[int, Decimal, int]]] = defaultdict(list)
    for model, _, requests, read, written, high, low in connection.execute(query):
        if pattern.lower() in model.lower():
            hours[model].append((int(requests), int(written) + int(read) * READING_SHARE, whole(high, low)))
    found = (_load(model, spans) for model, spans in hours.items())
    return sorted((load for load in found if load.tokens), key=lambda load: -load.cost_pico)


def _load(model: str, spans: Sequence[tuple[int, Decimal, int]]) -> Load:
    requests, tokens, costs = zip(*spans, strict=True)
    return Load(model, sum(requests), sum(tokens, Decimal(0)), sum(costs), max(tokens))


@dataclass(frozen=True, slots=True)
class Student:
    """A model that was tuned on the API's answers and can replace the API for a part of the load. `share`: that part,
    0..1. `training_pico`: the cost of the training in pico-dollars, paid once."""

    share: Decimal
    training_pico: int

    def of(self, load: Load) -> Load:
        """The part of `load` that the student serves instead of the API."""
        requests, cost = int(load.requests * self.share), int(load.cost_pico * self.share)
        return Load(load.model, requests, load.tokens * self.share, cost, load.busiest * self.share)

    def days_until_paid(self, one: Comparison) -> Decimal | None:
        """The number of days until the student has saved the cost of its training; None if its machine costs more than
        the API."""
        saved = one.load.cost_pico - one.self_host_pico
        return self.training_pico * one.hours / 24 / saved if saved > 0 else None


def compare(found: Sequence[Load], machines: Sequence[Machine], since: float, until: float) -> list[Comparison]:
    hours = Decimal(str(until - since)) / 3600
    return [Comparison(load, machine, hours) for load in found for machine in machines]


def as_object(found: Sequence[Comparison], student: Student | None = None) -> dict[str, Any]:
    """The comparisons as JSON values. Amounts are exact decimal text in USD; shares are text rounded to four places."""
    rows = [_object(one) for one in found]
    if student is not None:
        for one, row in zip(found, rows, strict=True):
            days = student.days_until_paid(one)
            row["days_until_paid"] = None if days is None else f"{days:.1f}"
    return {"currency": "USD", "method": METHOD, "rows": rows}


def _object(one: Comparison) -> dict[str, Any]:
    per_million = one.load.cost_pico / one.load.tokens * 10**6 / PICO_PER_USD
    return {
        "model": one.load.model,
        "requests": one.load.requests,
        "api_usd": dollars(one.load.cost_pico),
        "api_usd_per_1m_tokens": f"{per_million:.4f}",
        "machine": one.machine.name,
        "size": one.machine.size,
        "machine_hour_usd": dollars(one.machine.hour_pico),
        "tokens_per_second": f"{one.machine.tokens_per_second.normalize():f}",
        "utilisation_needed": f"{one.needed:.4f}",
        "utilisation": f"{one.utilisation:.4f}",
        "machines": one.machines,
        "hours": f"{one.hours:.2f}",
        "self_host_usd": dollars(one.self_host_pico),
        "pays": one.pays,
        "source": one.machine.source,
    }
