from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import pytest

from gateway.backends.resilience.fair_queue import BATCH_TURN, FairQueue

_numbers = count()


@dataclass(frozen=True)
class Waiting:
    share: str
    batch: bool = False
    number: int = field(default_factory=_numbers.__next__)


def queue_of(line: str) -> FairQueue[Waiting]:
    """`"a a b B"`: who came in which order; capitals are batch."""
    queue: FairQueue[Waiting] = FairQueue()
    for name in line.split():
        queue.push(Waiting(name.lower(), name.isupper()))
    return queue


def served(queue: FairQueue[Waiting], held: dict[str, int] | None = None, *, keep: bool = False) -> str:
    """Everybody in their order; with `keep` a place is held until the end."""
    names, held = [], dict(held or {})
    while (next_one := queue.pop(held)) is not None:
        names.append(next_one.share.upper() if next_one.batch else next_one.share)
        if keep:
            held[next_one.share] = held.get(next_one.share, 0) + 1
    return " ".join(names)


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("", ""),
        ("a a a", "a a a"),
        ("a a a a b", "a b a a a"),
        ("a a a b b c", "a b c a b a"),
        ("A A a b", "a b A A"),
        ("A B a B", "a A B B"),
    ],
)
def test_shares_take_turns_and_batch_comes_last(line: str, order: str) -> None:
    assert served(queue_of(line)) == order


@pytest.mark.parametrize(
    ("held", "order"),
    [
        ({"a": 2}, "b b a b a a"),
        ({"a": 1, "b": 1}, "a b a b a b"),
        ({"c": 9}, "a b a b a b"),
    ],
)
def test_who_holds_fewer_places_is_next(held: dict[str, int], order: str) -> None:
    assert served(queue_of("a a a b b b"), held, keep=True) == order


def test_within_a_share_the_first_to_come_is_the_first() -> None:
    queue = queue_of("a b a b a b a")
    numbers = [waiter.number for waiter in iter(lambda: queue.pop({}), None) if waiter.share == "a"]
    assert numbers == sorted(numbers)


def test_one_that_floods_does_not_starve_one_that_asks_once() -> None:
    queue = queue_of("flood " * 500 + "polite")
    assert "polite" in served(queue).split()[:2]


def test_batch_is_never_starved() -> None:
    queue = queue_of("a " * 100 + "B " * 100)
    first = Counter(served(queue).split()[: 10 * BATCH_TURN])
    assert first == {"a": 10 * (BATCH_TURN - 1), "B": 10}


def test_those_who_leave_are_forgotten() -> None:
    queue: FairQueue[Waiting] = FairQueue()
    waiters = [Waiting("a"), Waiting("b"), Waiting("b", batch=True)]
    for waiter in waiters:
        queue.push(waiter)
    assert (len(queue), queue.shares(), queue.waiting("b")) == (3, 2, 2)
    for waiter in (*waiters, *waiters):
        queue.discard(waiter)
    assert (len(queue), queue.shares(), queue.waiting("b")) == (0, 0, 0)
    assert queue.pop({}) is None


@pytest.mark.parametrize(
    ("line", "newcomer", "goes"),
    [
        ("a a a", "a", None),
        ("a a a", "b", "a"),
        ("a a b", "b", None),  # both lines would be as long as the other is now
        ("a a a b", "b", "a"),
        ("a b c", "d", None),
        ("a b B", "a", "B"),
        ("A A A B b", "a", "A"),
        ("a a a", "B", None),
        ("A A A a", "B", "A"),
        ("A A A b b", "B", None),
    ],
)
def test_in_a_full_queue_the_longest_line_is_cut_and_batch_gives_way(
    line: str, newcomer: str, goes: str | None
) -> None:
    queue = queue_of(line)
    unlucky = queue.to_drop_for(newcomer.lower(), batch=newcomer.isupper())
    assert (unlucky and (unlucky.share.upper() if unlucky.batch else unlucky.share)) == goes


def test_it_is_the_newest_that_has_to_go() -> None:
    queue = queue_of("a b a c a")
    unlucky = queue.to_drop_for("d", batch=False)
    assert unlucky is not None
    queue.discard(unlucky)
    left = [waiter.number for waiter in iter(lambda: queue.pop({}), None) if waiter.share == "a"]
    assert max(left) < unlucky.number
