"""A wait ends with its condition, and its failure names the condition."""

from __future__ import annotations

import itertools

import pytest

from tests.support.waiting import until, wait_until


async def test_returns_the_first_true_value() -> None:
    counter = itertools.count()
    assert await until(lambda: next(counter) > 2 and "done") == "done"
    assert next(counter) == 4


async def test_awaits_a_condition_that_is_a_coroutine() -> None:
    counter = itertools.count()

    async def third() -> int:
        return next(counter) // 2

    assert await until(third) == 1


async def test_an_expected_error_counts_as_not_yet() -> None:
    values = iter(["no number", "7"])
    assert await until(lambda: int(next(values)), not_yet=(ValueError,)) == 7


async def test_any_other_error_ends_the_wait() -> None:
    with pytest.raises(ZeroDivisionError):
        await until(lambda: 1 // 0, not_yet=(ValueError,))


async def test_fails_with_the_source_and_the_last_value() -> None:
    entries = ["the only entry"]
    with pytest.raises(AssertionError, match=r"(?s)within 0\.02 s: .*len\(entries\) > 1.*last value: False"):
        await until(lambda: len(entries) > 1, within_s=0.02)


def test_the_blocking_wait_does_the_same() -> None:
    values = iter(["", "ready"])
    assert wait_until(lambda: next(values)) == "ready"
    assert wait_until(lambda: int(next(iter(["7"]))), not_yet=(ValueError,)) == 7
    with pytest.raises(AssertionError, match=r"(?s)False\b.*last value: ValueError"):
        wait_until(lambda: False or int("x"), within_s=0.02, not_yet=(ValueError,))
