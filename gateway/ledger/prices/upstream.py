"""The response headers in which one gateway tells another gateway the cost and the prices of an answer. So a cost is
computed only once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from gateway.domain.backend import Backend
from gateway.domain.units import PICO_PER_USD, usd_to_pico
from gateway.ledger.prices.applied import Terms, price_of

PRICE = b"x-thriftgate-price"
"""Pico-dollars per token of each class, as in a row of the ledger. Only a Thriftgate sends this header."""
LITELLM, LITELLM_CACHED = b"x-litellm-response-cost", b"x-litellm-cache-key"
"""A LiteLLM proxy's cost of a whole answer in US dollars, and the header of answers from its cache."""
SOURCE = "upstream gateway"
BILL = "provider's bill"
"""The `price_source` of a cost that the provider stated in the answer's usage."""
_USD = re.compile(rb"\d{1,9}(?:\.\d{1,15})?")
_FLOAT = re.compile(rb"\d{1,9}(?:\.\d{1,20})?(?:e-\d{1,2})?")
"""Matches numbers as Python writes them, such as 4.5e-05."""
_PRICE = re.compile(rb"(?:[a-z0-9_]{1,20}=\d{1,18} ?){2,12}")
Headers = Sequence[tuple[bytes, bytes]]


def told_in(headers: Headers, backend: Backend, terms: Terms | None) -> tuple[int | None, Terms | None]:
    """Read the answer's cost in pico-dollars and its unit prices from the headers. The cost is None if the upstream
    gateway did not send it, as for a stream. `terms`: the prices of this gateway; they are used if the upstream gateway
    sent none."""
    header = backend.facts.tells_cost.encode()
    if header == LITELLM:
        return _litellms_cost(dict(headers)), terms
    value = dict(headers).get(header, b"")
    cost = usd_to_pico(Decimal(value.decode())) if _USD.fullmatch(value) else None
    return cost, terms_in(headers) or terms


def _litellms_cost(found: Mapping[bytes, bytes]) -> int | None:
    """The cost that a LiteLLM proxy sent. An answer from the proxy's cache costs nothing, and its header has no cost. A
    cost of 0 for another answer is ignored, because the proxy may simply not know the model's price."""
    value = found.get(LITELLM, b"")
    cost = round(Decimal(value.decode()) * PICO_PER_USD) if _FLOAT.fullmatch(value) else 0
    return 0 if found.get(LITELLM_CACHED) and not cost else cost or None


def terms_in(headers: Headers) -> Terms | None:
    """The unit prices that the upstream gateway sent. None if it sent none, or if they cannot be read."""
    value = dict(headers).get(PRICE, b"")
    if not _PRICE.fullmatch(value):
        return None
    try:
        return Terms(replace(price_of(value.decode()), source=SOURCE))
    except (ValueError, TypeError):  # classes that this version does not know
        return None
