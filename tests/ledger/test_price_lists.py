"""Every entry of the packaged list beside two public lists. A difference needs a reason, in price_differences.json."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import orjson
import pytest

from gateway.ledger.prices.catalogue import Catalogue, ListedPrice, Listing
from gateway.ledger.prices.price_book import PriceBook
from tests.ledger.price_lists import Prices, in_genai_prices, in_litellm, ours

Difference = tuple[str, str, str | None, str]
"""Model, class, our price, theirs."""

REASONS = orjson.loads(Path(__file__).with_name("price_differences.json").read_bytes())
LEAST = {"litellm": 220, "genai-prices": 165}
"""Entries of ours that each list has: fewer means that names are no longer found there."""


def explained(name: str) -> set[Difference]:
    return {
        (model, what, mine, theirs)
        for group in REASONS
        if group["list"] == name
        for model, classes in group["differences"].items()
        for what, (mine, theirs) in classes.items()
    }


def compared(find: Callable[[ListedPrice, Listing], Prices | None]) -> tuple[int, set[Difference]]:
    """How many entries the list has, and where it says otherwise than ours."""
    register = Catalogue.load()
    count, found = 0, set[Difference]()
    for listed, price in PriceBook(register).entries():
        theirs = find(listed, register.listing)
        if theirs is None:
            continue
        count += 1
        mine = ours(listed, price)
        for what, usd in theirs.items():
            if mine.get(what) != usd:
                known = mine.get(what)
                text = None if known is None else f"{known.normalize():f}"
                found.add((listed.name, what, text, f"{usd.normalize():f}"))
    return count, found


@pytest.mark.skipif(find_spec("litellm") is None, reason="litellm, whose list this is, is an extra")
def test_every_difference_from_litellms_list_has_a_reason() -> None:
    count, found = compared(in_litellm)
    assert found == explained("litellm")
    assert count >= LEAST["litellm"]


def test_every_difference_from_the_list_of_genai_prices_has_a_reason() -> None:
    count, found = compared(in_genai_prices)
    assert found == explained("genai-prices")
    assert count >= LEAST["genai-prices"]


def test_a_reason_is_a_sentence() -> None:
    assert all(len(group["reason"].split()) >= 5 and group["reason"].endswith(".") for group in REASONS)
    assert {group["list"] for group in REASONS} == set(LEAST)
