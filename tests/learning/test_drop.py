"""A drop of quality that nobody announced is noticed, routed around, told of, and forgotten when it is over."""

from __future__ import annotations

import pytest

from tests.fakes.provider import Reply
from tests.learning.conftest import School, pupil

WITHIN = 60
"""Requests from the drop until nothing goes to the backend any more, at most, where each answer is compared."""


@pytest.mark.timeout(120)
async def test_a_drop_is_noticed_and_routed_around_and_its_end_too(
    school: School, capsys: pytest.CaptureFixture[str]
) -> None:
    who = pupil()
    for number in range(40):
        assert await school.ask(number, who) == "small"
    assert not school.learning.adjust("search", "small").margin
    school.small.default = Reply(text="41")
    served = [await school.ask(number, who) for number in range(WITHIN)]
    noticed = served.index("large")
    assert set(served[noticed:]) == {"large"}
    assert school.learning.adjust("search", "small").margin > 0.5
    assert not school.learning.adjust("other", "small").n

    school.small.default = Reply(text="42")  # it is probed in the background, and found to be well again
    again = [await school.ask(number, who) for number in range(3 * WITHIN)]
    returned = again.index("small")
    with capsys.disabled():
        print(f"\nnoticed after {noticed} wrong answers; served again after {returned} good ones", flush=True)
    assert again[-1] == "small"
