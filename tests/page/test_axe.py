"""axe-core finds nothing serious in any view."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

from tests.page.conftest import PHONE, WIDE, Open
from tests.page.test_looks import VIEWS

GRAVE = ("serious", "critical")
RUN = "() => axe.run(document, { resultTypes: ['violations'] })"


def violations(page: Any) -> list[str]:
    """Serious and critical violations on the page."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(RUN)["violations"]
    return [
        f"{one['id']}: {one['help']}: {node['html'][:120]}"
        for one in found
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_a_serious_violation(visit: Open, size: tuple[int, int], scheme: str) -> None:
    opened = visit(size, scheme)
    opened.page.goto(opened.dashboard.address)
    opened.page.wait_for_selector("#door:not([hidden])")
    assert violations(opened.page) == []
    page = opened.enter("lead")
    for address, ready, _ in VIEWS:
        opened.go(address)
        page.wait_for_selector(ready)
        assert violations(page) == [], address
    page.click("#try")
    assert violations(page) == []


def test_the_view_of_all_teams_has_no_serious_violation(visit: Open) -> None:
    page = visit().enter("admin", "#/teams?period=30")
    page.wait_for_selector("#teams td")
    assert violations(page) == []
