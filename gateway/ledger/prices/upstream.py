"""The cost and prices that gateways tell each other in response headers, so that a cost is computed once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from gateway.domain.units import usd_to_pico
from gateway.ledger.prices.applied import Terms, price_of

COST, PRICE = b"x-thriftgate-cost-usd", b"x-thriftgate-price"
"""The cost of a whole answer in US dollars, and pico-dollars per token of each class, as in a row of the ledger."""
SOURCE = "upstream gateway"
_USD = re.compile(rb"\d{1,9}(?:\.\d{1,15})?")
_PRICE = re.compile(rb"(?:[a-z0-9_]{1,20}=\d{1,18} ?){2,12}")


def cost_in(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """The cost of the answer in pico-dollars. None if the upstream gateway has told none, as for a stream."""
    value = dict(headers).get(COST, b"")
    return usd_to_pico(Decimal(value.decode())) if _USD.fullmatch(value) else None


def terms_in(headers: Sequence[tuple[bytes, bytes]]) -> Terms | None:
    """The unit prices that the upstream gateway has told. None if it has told none, or none that can be read."""
    value = dict(headers).get(PRICE, b"")
    if not _PRICE.fullmatch(value):
        return None
    try:
        return Terms(replace(price_of(value.decode()), source=SOURCE))
    except (ValueError, TypeError):  # classes that this version does not know
        return None
