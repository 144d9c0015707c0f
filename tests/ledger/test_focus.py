"""FOCUS rows add up to the ledger to the pico-dollar and keep the rules that focus-validator checks."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow.parquet
import pytest

from gateway.ledger.reports import focus
from gateway.state.sql.database import Database
from tests.ledger.booked import HOUR, JANUARY, USD, book, roll_up, row

LISTED = {"price_source": "list openai/gpt-4o, less 20% (2026-10-21)"}
RULES: dict[str, tuple[str, bool]] = {
    "BilledCost": ("decimal", False),
    "BillingAccountId": ("string", False),
    "BillingAccountName": ("string", False),
    "BillingAccountType": ("string", False),
    "BillingCurrency": ("USD", False),
    "BillingPeriodEnd": ("datetime", False),
    "BillingPeriodStart": ("datetime", False),
    "ChargeCategory": ("Usage|Purchase|Tax|Credit|Adjustment", False),
    "ChargeClass": ("Correction", True),
    "ChargeDescription": ("string", True),
    "ChargeFrequency": ("One-Time|Recurring|Usage-Based", False),
    "ChargePeriodEnd": ("datetime", False),
    "ChargePeriodStart": ("datetime", False),
    "ConsumedQuantity": ("decimal", False),
    "ConsumedUnit": ("string", False),
    "ContractedCost": ("decimal", False),
    "ContractedUnitPrice": ("decimal", False),
    "EffectiveCost": ("decimal", False),
    "InvoiceIssuerName": ("string", False),
    "ListCost": ("decimal", False),
    "ListUnitPrice": ("decimal", False),
    "PricingCategory": ("Standard|Dynamic|Committed|Other", False),
    "PricingCurrency": ("USD", False),
    "PricingQuantity": ("decimal", False),
    "PricingUnit": ("string", False),
    "ProviderName": ("string", False),
    "PublisherName": ("string", False),
    "ResourceId": ("string", False),
    "ServiceCategory": ("AI and Machine Learning", False),
    "ServiceName": ("string", False),
    "ServiceSubcategory": ("Generative AI", False),
    "SkuId": ("string", False),
    "SkuPriceId": ("string", False),
    "SubAccountId": ("string", True),
    "Tags": ("json", True),
}
"""Type or allowed values, and may it be null: FOCUS 1.2's requirements as focus-validator 2.2.1 has them."""


@pytest.fixture
def booked(any_database: Database) -> Database:
    book(
        any_database,
        row(tags='{"app": "shop"}'),
        row(),
        row(at=JANUARY + HOUR, team="chat"),
        row(**LISTED, backend="gpt", model="gpt-4o"),
        row(cost_pico=None, prices="", price_source=""),
        row(attempt=0, cost_pico=0, backend="", model="", prices="", cache="exact"),
        row(attempt=0, kind="idle", team="(machines)", cost_pico=-3, prices="", **dict.fromkeys(_TOKENS, 0)),
        row(simulated=True),
    )
    roll_up(any_database, cost_pico=12_345, input_tokens=100, cached_tokens=0, output_tokens=0)
    return any_database


_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")


def rows(database: Database, **asked: Any) -> list[dict[str, Any]]:
    with database.read() as connection:
        return list(focus.rows(connection, {"large": "acme-gpu"}, **asked))


def test_charges_add_up_to_the_ledger(booked: Database) -> None:
    found = rows(booked)
    assert sum(one["BilledCost"] for one in found) * USD == 4 * 50_500_000 - 3 + 12_345
    assert {one["BilledCost"] for one in found} == {one["EffectiveCost"] for one in found}
    assert sum(one["BilledCost"] for one in rows(booked, team="chat")) * USD == 50_500_000
    assert sum(one["BilledCost"] for one in rows(booked, until=JANUARY + HOUR, team="chat")) == 0


def test_each_class_of_tokens_is_a_sku_with_its_own_price(booked: Database) -> None:
    found = {one["SkuMeter"]: one for one in rows(booked, team="chat")}
    assert set(found) == {"Input Tokens", "Cached Input Tokens", "Output Tokens"}
    cached = found["Cached Input Tokens"]
    assert (cached["ConsumedQuantity"], cached["ConsumedUnit"]) == (5, "Tokens")
    assert cached["ListUnitPrice"] == Decimal("0.0000001")
    assert cached["ProviderName"] == "acme-gpu"
    assert cached["ChargePeriodStart"].isoformat() == "2026-01-01T01:00:00+00:00"
    assert cached["BillingPeriodEnd"].isoformat() == "2026-02-01T00:00:00+00:00"


def test_the_list_price_is_the_one_before_the_discount(booked: Database) -> None:
    (output,) = [one for one in rows(booked) if one["SkuId"] == "openai/gpt-4o/output"]
    assert output["ContractedUnitPrice"] == Decimal("0.000002")
    assert output["ListUnitPrice"] == Decimal("0.0000025")
    assert output["ListCost"] == output["BilledCost"] / Decimal("0.8")


def test_requests_tags_and_what_the_ledger_knows_are_tags(booked: Database) -> None:
    tags = [orjson.loads(one["Tags"]) for one in rows(booked)]
    assert {"app": "shop", "thriftgate/key": "key-search"} in tags


def test_the_csv_keeps_the_rules(booked: Database) -> None:
    found = list(csv.DictReader(io.StringIO(focus.as_csv(rows(booked)))))
    assert tuple(found[0]) == focus.COLUMNS
    assert set(RULES) <= set(focus.COLUMNS)
    for one in found:
        for name, (kind, nullable) in RULES.items():
            assert fits(one[name], kind, nullable), (name, one[name])


def fits(value: str, kind: str, nullable: bool) -> bool:
    match (value, kind):
        case ("", _):
            return nullable
        case (_, "string"):
            return True
        case (_, "decimal"):
            return re.fullmatch(r"-?\d+\.\d+", value) is not None
        case (_, "datetime"):
            return datetime.fromisoformat(value).tzname() == "UTC"
        case (_, "json"):
            return isinstance(orjson.loads(value), dict)
    return value in kind.split("|")


def test_parquet_has_the_same_with_exact_types(booked: Database) -> None:
    found = rows(booked)
    table = pyarrow.parquet.read_table(io.BytesIO(focus.as_parquet(found)))
    assert tuple(table.column_names) == focus.COLUMNS
    assert str(table.schema.field("BilledCost").type) == "decimal128(38, 12)"
    assert str(table.schema.field("ChargePeriodStart").type) == "timestamp[ms, tz=UTC]"
    assert sum(table.column("BilledCost").to_pylist()) == sum(one["BilledCost"] for one in found)
