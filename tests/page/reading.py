"""What stands on the page, as a reader sees it and as the elements say it exactly."""

from __future__ import annotations

import time
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATIENCE_S = 15.0
TILES = """() => Object.fromEntries([...document.querySelectorAll("#brief .tile")].map((tile) =>
  [tile.querySelector("dt").textContent, [...tile.querySelectorAll("data")].map((each) => each.value)]))"""
TABLE = """(table) => [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) =>
  cell.querySelector("data")?.value ?? cell.textContent))"""
MONEY = """() => [...document.querySelectorAll("data[title$=' USD']")].map((each) => [each.value, each.textContent])"""


def tiles(page: Page) -> dict[str, list[str]]:
    """Title of each tile → the exact values in it."""
    found: dict[str, list[str]] = page.evaluate(TILES)
    return found


def table(page: Page, where: str) -> list[list[str]]:
    """Cells of the table in `where`: exact values where there are some, else text."""
    found: list[list[str]] = page.eval_on_selector(f"{where} table", TABLE)
    return found


def amounts(page: Page) -> list[tuple[str, str]]:
    """(exact, as it is written) of every sum of money on the page."""
    return [(exact, shown) for exact, shown in page.evaluate(MONEY)]


def written(exact: str) -> str:
    """Dollars as the page should write them."""
    amount = Decimal(exact)
    size = abs(amount)
    if 0 < size < Decimal("0.00005"):
        return f"{'−' if amount < 0 else ''}< $0.0001"
    places = Decimal("0.0001") if 0 < size < 1 else Decimal("0.01")
    rounded = amount.quantize(places, ROUND_HALF_UP)
    return f"{'-' if amount < 0 else ''}${abs(rounded):,}"


def until(page: Page, condition: str) -> None:
    """Wait for what `condition` says; Playwright's own way is an `eval`, which the page's policy forbids."""
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never: {condition}"
        page.wait_for_timeout(30)
