"""The measurement of one large scope, on a small one: it asks as the gateway does."""

from __future__ import annotations

import pytest

from loadtests.index_scale import measure

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(120)]


async def test_what_was_stored_is_found_by_its_own_words() -> None:
    figures = await measure(count=600, lookups=20, seed=1)
    assert figures["questions"] == 600
    assert figures["recall"] >= 0.7  # a look-up that takes longer than 250 ms finds nothing
