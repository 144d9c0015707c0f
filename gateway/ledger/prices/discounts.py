"""Negotiated discounts on list prices, and the balance of prepaid credits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from sqlalchemy import ColumnElement, Connection, and_, or_

from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.money.price_classes import times
from gateway.domain.units import usd_to_pico
from gateway.ledger.store.entries import entries, spent
from gateway.settings.prices import Credit, Discount, Term

LESS = ", less "
"""Separator in a row's `price_source`, between the list price's source and the discount."""


def discounted(price: Price, backend: Backend, provider: str, discounts: Iterable[Discount], on: date) -> Price:
    """The price after the discount that is valid on the day `on`. A discount for the backend has priority over a
    discount for the provider."""
    holding = [discount for discount in discounts if discount.holds(on)]
    own = [discount for discount in holding if discount.backend == backend.name]
    common = [discount for discount in holding if provider and discount.provider == provider]
    for discount in (*own, *common):
        percent = f"{discount.percent.normalize():f}%"
        return times(price, 1 - discount.percent / 100, f"{LESS}{percent}")
    return price


def undiscounted(unit_pico: int, price_source: str) -> Decimal:
    """The unit price, in pico-dollars per token, before the discount. `unit_pico`: the price in the row.
    `price_source`: the row's text, which names the discount."""
    _, less, rest = price_source.rpartition(LESS)
    if not less:
        return Decimal(unit_pico)
    share = 1 - Decimal(rest.split("%")[0]) / 100
    return Decimal(unit_pico) if not share else (unit_pico / share).quantize(Decimal(1))


@dataclass(frozen=True, slots=True)
class CreditUse:
    """The used part of a prepaid credit, in pico-dollars. `over_pico`: spend beyond the credit."""

    credit: Credit
    used_pico: int
    left_pico: int
    over_pico: int


def drawn(connection: Connection, credits: Iterable[Credit], providers: Mapping[str, str]) -> list[CreditUse]:
    """Compute from the ledger how much of each credit is used. `providers`: backend → provider."""
    found = []
    for credit in credits:
        amount, cost = usd_to_pico(credit.usd), spent(connection, _meant(credit, providers))
        found.append(CreditUse(credit, min(cost, amount), max(amount - cost, 0), max(cost - amount, 0)))
    return found


def _meant(term: Term, providers: Mapping[str, str]) -> ColumnElement[bool]:
    """The SQL condition for the ledger's entries to which `term` applies. `term`: a discount or a prepaid credit."""
    c = entries.c
    since, until = term.period()
    if term.backend is not None:
        target = c.backend == term.backend
    else:
        named = [backend for backend, provider in providers.items() if provider == term.provider]
        # Entries of backends that are no longer configured are recognised by their price source.
        target = or_(c.backend.in_(named), c.price_source.startswith(f"list {term.provider}/", autoescape=True))
    times = [*([c.at >= since] if since is not None else []), *([c.at < until] if until is not None else [])]
    return and_(target, *times)
