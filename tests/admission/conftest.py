"""Tenants, records and backends for the admission room."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from gateway.domain.backend import Backend
from gateway.domain.policy import Policy
from gateway.domain.price import Price
from gateway.domain.record import Record
from gateway.domain.tenant import Key, Tenant

ZONES = [ZoneInfo(name) for name in ("UTC", "Asia/Tokyo")]
"""Policies are loaded in a thread, which reads the zones' files; here they are read now and kept."""

PRICES = {
    "small": Price.per_million(Decimal("1"), Decimal("10")),
    "large": Price.per_million(Decimal("10"), Decimal("100")),
    "free": Price.per_million(Decimal(0), Decimal(0)),
}


class Prices:
    """A price list of three backends; `house` has none."""

    def price(self, backend: Backend) -> Price | None:
        return PRICES.get(backend.name)


def backend(name: str = "small", **more: Any) -> Backend:
    return Backend(name=name, kind="openai", base_url="http://127.0.0.1:1/v1", model="plain", **more)


def tenant(key: str = "k1", **policy: Any) -> Tenant:
    return Tenant(Key(key, "search"), Policy(team="search", **policy))


def record(who: Tenant, *, stream: bool = False) -> Record:
    return Record("req_1", who, "auto", "openai_chat", stream)
