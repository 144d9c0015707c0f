"""A drop of quality that nobody announced is noticed, routed around, told of, and forgotten when it is over."""

from __future__ import annotations

import pytest

from tests.fakes.provider import Reply
from tests.learning.conftest import ShadowedGateway, shadowed_tenant

WITHIN = 60
"""Requests from the drop until nothing goes to the backend any more, at most, where each answer is compared."""


@pytest.mark.timeout(120)
async def test_a_drop_is_noticed_and_routed_around_and_its_end_too(
    shadowed: ShadowedGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    who = shadowed_tenant()
    for number in range(40):
        assert await shadowed.ask(number, who) == "small"
    assert not shadowed.learning.adjust("search", "small").margin
    shadowed.small.default = Reply(text="41")
    served = [await shadowed.ask(number, who) for number in range(WITHIN)]
    noticed = served.index("large")
    assert set(served[noticed:]) == {"large"}
    assert shadowed.learning.adjust("search", "small").margin > 0.5
    assert not shadowed.learning.adjust("other", "small").n

    shadowed.small.default = Reply(text="42")  # it is probed in the background, and found to be well again
    again = [await shadowed.ask(number, who) for number in range(3 * WITHIN)]
    returned = again.index("small")
    with capsys.disabled():
        print(f"\nnoticed after {noticed} wrong answers; served again after {returned} good ones", flush=True)
    assert again[-1] == "small"
