"""Random sessions; `python -m tests.context.histories 10000` checks more of them."""

from __future__ import annotations

import pytest

from gateway.context.count import Counter
from tests.context.histories import check


@pytest.mark.parametrize("first", range(0, 200, 20))
async def test_every_request_of_a_random_session_is_valid(counter: Counter, first: int) -> None:
    """Calls keep their results, signed thinking its history, and two workers leave out the same parts."""
    assert sum([await check(seed, counter) for seed in range(first, first + 20)]) > 20
