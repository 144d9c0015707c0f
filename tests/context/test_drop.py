from __future__ import annotations

from gateway.context.drop import drop_oldest
from gateway.context.groups import Group

GROUPS = [Group((0,), True), Group((1, 2), False), Group((3, 4), False), Group((5,), True)]
SIZES = [10, 20, 30, 40, 50, 60]


def test_the_oldest_groups_go_first_and_no_more_than_needed() -> None:
    assert drop_oldest(GROUPS, SIZES, 0) == frozenset()
    assert drop_oldest(GROUPS, SIZES, 1) == {1, 2}
    assert drop_oldest(GROUPS, SIZES, 50) == {1, 2}
    assert drop_oldest(GROUPS, SIZES, 51) == {1, 2, 3, 4}


def test_what_is_kept_stays_even_when_that_is_not_enough() -> None:
    assert drop_oldest(GROUPS, SIZES, 10_000) == {1, 2, 3, 4}
