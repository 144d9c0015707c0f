"""Converts spend to FOCUS rows: the FinOps Open Cost and Usage Specification, version 1.2 (https://focus.finops.org).

A row sums the tokens of one class, for one team, one model, one price and one hour. Billed cost and contracted cost are
equal. `ListCost` is the cost before a negotiated discount. Answers from the cache have no row, because they are not
charged. Attempts without a known price are omitted, because FOCUS has no unknown cost; the command that writes the file
reports their number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
from sqlalchemy import Connection, func, select

from gateway.domain.units import pico_to_usd
from gateway.ledger.prices.applied import price_of
from gateway.ledger.prices.discounts import undiscounted
from gateway.ledger.reports.dimensions import column
from gateway.ledger.reports.formats import cell
from gateway.ledger.reports.parquet import table
from gateway.ledger.store.entries import IDLE, entries, within
from gateway.ledger.store.sums import pico_sum, whole

VERSION = "1.2"
CLASSES = {
    "input_tokens": ("input", "Input Tokens"),
    "cached_tokens": ("cached_input", "Cached Input Tokens"),
    "cache_write_5m_tokens": ("cache_write_5m", "Cache Write Tokens (5 min)"),
    "cache_write_1h_tokens": ("cache_write_1h", "Cache Write Tokens (1 h)"),
    "audio_input_tokens": ("audio_input", "Audio Input Tokens"),
    "image_input_tokens": ("image_input", "Image Input Tokens"),
    "output_tokens": ("output", "Output Tokens"),
    "reasoning_tokens": ("reasoning", "Reasoning Tokens"),
    "audio_tokens": ("audio", "Audio Output Tokens"),
    "image_tokens": ("image", "Image Output Tokens"),
}
"""Column of the ledger → (class of price, name of the meter)."""
PARENTS = {
    "cached_input": "input",
    "cache_write_5m": "input",
    "cache_write_1h": "cache_write_5m",
    "audio_input": "input",
    "image_input": "input",
    "reasoning": "output",
    "audio": "output",
    "image": "output",
}
"""Token class without a price of its own → the class whose price it has."""
OWN = "self-hosted"
_PICO = Decimal("1e-12")
_BY = (
    *("organisation", "team", "key_id", "cost_centre", "tags", "backend", "model", "region", "kind", "price_source"),
    "service_tier",
)
"""Columns of the ledger by which rows are grouped, besides prices and hour."""
_NO_COMMITMENT = tuple(
    f"CommitmentDiscount{name}" for name in ("Category", "Id", "Name", "Quantity", "Status", "Type", "Unit")
)
COLUMNS = (
    *("AvailabilityZone", "BilledCost", "BillingAccountId", "BillingAccountName", "BillingAccountType"),
    *("BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass"),
    *("ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", *_NO_COMMITMENT),
    *("ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "InvoiceId"),
    *("InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingCurrency"),
    *("PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice"),
    *("PricingQuantity", "PricingUnit", "ProviderName", "PublisherName"),
    *("RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName"),
    *("ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName"),
    *("SubAccountType", "Tags"),
)
_DECIMALS = (
    *("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"),
    *("ConsumedQuantity", "PricingQuantity", "ContractedUnitPrice", "ListUnitPrice", "CommitmentDiscountQuantity"),
    *("PricingCurrencyContractedUnitPrice", "PricingCurrencyEffectiveCost", "PricingCurrencyListUnitPrice"),
)
_FIXED = {
    **dict.fromkeys(("AvailabilityZone", "ChargeClass", "InvoiceId", *_NO_COMMITMENT)),
    **dict.fromkeys(("BillingCurrency", "PricingCurrency"), "USD"),
    "BillingAccountType": "Organisation",
    "SubAccountType": "Team",
    "ChargeCategory": "Usage",
    "ChargeFrequency": "Usage-Based",
    "PricingCategory": "Standard",
    "ResourceType": "Backend",
    "ServiceCategory": "AI and Machine Learning",
    "ServiceSubcategory": "Generative AI",
}
"""Columns that have the same value in all rows."""
_TIMES = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens of one class: their number, their cost, and their cost at list price."""

    sku: str
    meter: str
    unit: str
    quantity: int
    pico: int
    list_pico: Decimal


def rows(
    connection: Connection,
    providers: Mapping[str, str],
    *,
    team: str | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the FOCUS rows of requests that began in `[since, until)` (Unix seconds). `providers`: backend → provider,
    for the backends in the price list."""
    c = entries.c
    hour = column(entries, "hour", sqlite=connection.dialect.name == "sqlite").label("hour")
    group = [hour, *(c[name] for name in _BY), c.prices]
    sums = [func.sum(c[name]).label(name) for name in CLASSES]
    query = (
        select(*group, *sums, func.sum(c.attempts).label("count"), *pico_sum(c.cost_pico))
        .where(c.simulated.is_(False), c.cost_pico.is_not(None), c.cost_pico != 0, *within(since, until, team))
        .group_by(*group)
        .order_by(*group)
    )
    for found in connection.execute(query):
        facts = dict(zip([*("hour", *_BY, "prices"), *CLASSES, "count"], found[:-2], strict=True))
        for part in _parts(facts, whole(*found[-2:])):
            yield _row(facts, part, _provider(facts, providers))


def as_csv(found: list[dict[str, Any]]) -> str:
    """The rows as CSV with a header. Decimals have no exponent, times are in ISO 8601, and null is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_text(row[name]) for name in COLUMNS] for row in found)
    return out.getvalue()


def as_parquet(found: list[dict[str, Any]]) -> bytes:
    """The rows as a Parquet file. Raises ParquetMissing."""
    types = {name: Decimal if name in _DECIMALS else datetime if name in _TIMES else str for name in COLUMNS}
    return table({name: [row[name] for row in found] for name in COLUMNS}, types)


def _parts(facts: dict[str, Any], cost_pico: int) -> list[Part]:
    """Divide the cost by token class. If the classes do not add up to `cost_pico`, the result is one part with the
    whole cost."""
    source = str(facts["price_source"])
    if facts["kind"] == IDLE:
        return [Part("idle", "Idle Machine Time", "Hours", int(facts["count"]), cost_pico, Decimal(cost_pico))]
    price = price_of(facts["prices"]) if facts["prices"] else None
    parts = []
    for name, (sku, meter) in CLASSES.items():
        quantity = int(facts[name])
        if quantity and price is not None:
            unit = _unit(price, sku)
            parts.append(Part(sku, meter, "Tokens", quantity, quantity * unit, quantity * undiscounted(unit, source)))
    if parts and sum(part.pico for part in parts) == cost_pico:
        return parts
    quantity = sum(int(facts[name]) for name in CLASSES) or 1
    return [Part("tokens", "Tokens", "Tokens", quantity, cost_pico, undiscounted(cost_pico, source))]


def _unit(price: Any, sku: str) -> int:
    found: int | None = getattr(price, sku)
    return _unit(price, PARENTS[sku]) if found is None else found


def _provider(facts: dict[str, Any], providers: Mapping[str, str]) -> str:
    """The provider whose price list was used. If no list was used, the backend's provider; if that is unknown,
    `OWN`."""
    source = str(facts["price_source"])
    if source.startswith("list "):
        return source.removeprefix("list ").partition("/")[0]
    return providers.get(facts["backend"]) or OWN


def _row(facts: dict[str, Any], part: Part, provider: str) -> dict[str, Any]:
    costs, sku = _costs(part), f"{provider}/{facts['model']}/{part.sku}"
    return {
        **_FIXED,
        **_accounts(facts),
        **_times(int(facts["hour"])),
        **costs,
        "SkuId": sku,
        "SkuPriceId": f"{sku}@{costs['ContractedUnitPrice'].normalize():f}",
        "ChargeDescription": f"{part.meter} of {facts['model']} by {facts['backend']}",
        "ServiceName": f"{provider} inference",
        **dict.fromkeys(("InvoiceIssuerName", "ProviderName", "PublisherName"), provider),
        **dict.fromkeys(("RegionId", "RegionName"), facts["region"] or None),
        **dict.fromkeys(("ResourceId", "ResourceName"), facts["backend"]),
        "SkuPriceDetails": _details(facts),
    }


def _accounts(facts: dict[str, Any]) -> dict[str, Any]:
    organisation, team = facts["organisation"], facts["team"]
    return {
        "BillingAccountId": organisation,
        "BillingAccountName": organisation,
        "SubAccountId": team,
        "SubAccountName": team,
        "Tags": _tags(facts),
    }


def _times(hour: int) -> dict[str, Any]:
    """The values of the time columns. `hour`: hours since 1970."""
    start = datetime.fromtimestamp(hour * 3600, UTC)
    month = start.replace(day=1, hour=0)
    return {
        "BillingPeriodStart": month,
        "BillingPeriodEnd": (month + timedelta(days=32)).replace(day=1),
        "ChargePeriodStart": start,
        "ChargePeriodEnd": start + timedelta(hours=1),
    }


def _costs(part: Part) -> dict[str, Any]:
    quantity, cost, listed = Decimal(part.quantity), pico_to_usd(part.pico), Decimal(part.list_pico) / 10**12
    unit, list_unit = ((amount / quantity).quantize(_PICO) for amount in (cost, listed))
    return {
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "PricingCurrencyEffectiveCost"), cost),
        "ListCost": listed,
        **dict.fromkeys(("ContractedUnitPrice", "PricingCurrencyContractedUnitPrice"), unit),
        **dict.fromkeys(("ListUnitPrice", "PricingCurrencyListUnitPrice"), list_unit),
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), quantity),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), part.unit),
        "SkuMeter": part.meter,
    }


def _details(facts: dict[str, Any]) -> str | None:
    """The service tier as a FOCUS column; None for the standard tier. FOCUS requires the prefix `x_` for columns that
    it does not define."""
    tier = facts["service_tier"]
    return orjson.dumps({"x_ServiceTier": tier}).decode() if tier else None


def _tags(facts: dict[str, Any]) -> str:
    """The tags of the request together with the tags that the gateway sets. If both have a tag of the same name, the
    gateway's tag is used."""
    ours = {"thriftgate/key": facts["key_id"], "thriftgate/cost_centre": facts["cost_centre"]}
    return orjson.dumps(orjson.loads(facts["tags"]) | {name: value for name, value in ours.items() if value}).decode()


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        # Always with a decimal point. Otherwise a reader that guesses types would read integers.
        return f"{value:f}".rstrip("0") if value % 1 else f"{value:.1f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return "" if value is None else cell(str(value))
