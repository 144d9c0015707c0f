"""Random sessions; `python -m tests.context.histories 10000` checks more of them."""

from __future__ import annotations

import pytest

from gateway.context.count import Counter
from tests.context.histories import check


@pytest.mark.parametrize("first", range(0, 150, 15))
async def test_every_request_of_a_random_session_is_valid(counter: Counter, first: int) -> None:
    """Calls keep their results, signed thinking its history, and two workers leave out the same parts."""
    sent = [await check(seed, counter) for seed in range(first, first + 15)]
    assert sum(each["requests"] for each in sent) > 20
