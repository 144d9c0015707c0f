"""Calls in progress: when their locks are released."""

from __future__ import annotations

from gateway.cache.coalescing.registry import SharedCalls
from gateway.cache.coalescing.shared_call import SharedCall
from gateway.cache.coalescing.source import Form

FORM: Form = (False, True)


def test_the_locks_of_a_call_are_released_once_and_never_those_of_a_later_call() -> None:
    released: list[SharedCall] = []
    calls = SharedCalls(released.append)
    first = calls.add(b"digest", FORM, 10.0)
    calls.forget(first)  # a budget may cut its answer, so nobody joins it
    second = calls.add(b"digest", FORM, 20.0)
    calls.forget(first)
    assert released == [first]
    assert len(calls) == 1
    calls.forget(second)
    calls.forget(second)
    assert released == [first, second]


def test_a_call_whose_place_was_taken_releases_nothing() -> None:
    released: list[SharedCall] = []
    calls = SharedCalls(released.append)
    first, second = calls.add(b"digest", FORM, 1.0), calls.add(b"digest", FORM, 20.0)
    calls.forget(first)
    assert released == []
    calls.forget(second)
    assert released == [second]
