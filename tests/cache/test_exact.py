from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.cache.entry import Entry, Flush
from gateway.cache.store.exact import ExactIndex, Quota


def entry(
    name: str, team: str = "a", *, size: int = 1, asked: float = 0.0, expires: float = 100.0, worth: int = 0
) -> Entry:
    tags = ("t", "docs/t") if name.startswith("t") else ()
    return Entry(name.encode(), team, tags, asked, expires, size, worth_pico=worth)


def test_the_oldest_goes_first_and_only_in_its_own_team() -> None:
    gone: list[bytes] = []
    known = ExactIndex(Quota(entries=2, bytes=10), lambda left: gone.append(left.digest))
    for name in "xyz":
        known.put(entry(name), 0)
    known.put(entry("other", "b"), 0)
    known.put(entry("w", size=10), 0)
    assert gone == [b"x", b"y", b"z"]
    assert known.get(b"other", 0)


def test_what_saves_least_for_its_room_goes_before_what_is_older() -> None:
    known = ExactIndex(Quota(entries=3), lambda _: None)
    for name, size, worth in (("dear", 10, 900), ("large", 1000, 900), ("cheap", 10, 5), ("new", 10, 0)):
        gone = known.put(entry(name, size=size, worth=worth), 0)
    assert [left.digest for left in gone or ()] == [b"cheap"]
    assert [left.digest for left in known.put(entry("newer", worth=1), 0) or ()] == [b"new"]
    assert [left.digest for left in known.put(entry("last", worth=1), 0) or ()] == [b"large"]


def test_what_is_asked_for_stays() -> None:
    """Of those that nobody asked for lately the cheapest goes, though another one is cheaper."""
    known = ExactIndex(Quota(entries=20), lambda _: None)
    for number in range(20):
        known.put(entry(f"{number}", worth=100 if number else 1), 0)
    known.touch(b"0")
    for number in range(3):
        gone = known.put(entry(f"new {number}", worth=100), 0)
        assert [left.digest for left in gone or ()] == [f"{number + 1}".encode()]


def test_a_team_may_have_less_than_any_may() -> None:
    known = ExactIndex(Quota(entries=9), lambda _: None)
    for name in "uvwxyz":
        known.put(entry(name), 0, 2)
    known.put(entry("other", "b"), 0)
    assert len(known) == 3
    for name in "uvwx":
        known.put(entry(name), 0)  # of another worker: what has to go for it is that one's to say
    assert len(known) == 7


def test_a_flush_goes_by_the_beginning_of_a_tag_and_for_all_teams() -> None:
    known = ExactIndex(Quota(), lambda _: None)
    for name, team in (("t1", "a"), ("t2", "b"), ("x", "b")):
        known.put(entry(name, team), 0)
    assert {left.digest for left in known.covered(Flush("", 5))} == {b"t1", b"t2", b"x"}
    assert known.flush(Flush("a", 5, prefix="other/")) == []
    assert {left.digest for left in known.flush(Flush("", 5, prefix="docs/"))} == {b"t1", b"t2"}


def test_an_answer_stored_again_takes_the_place_of_the_old_one() -> None:
    known = ExactIndex(Quota(), lambda _: None)
    known.put(entry("x", size=5), 0)
    known.put(entry("x", size=7), 0)
    assert (len(known), known.size) == (1, 7)


def test_what_has_had_its_time_is_gone() -> None:
    known = ExactIndex(Quota(), lambda _: None)
    known.put(entry("x", expires=5), 0)
    known.put(entry("y", expires=50), 0)
    known.put(entry("late", expires=5), 6)
    assert known.get(b"x", 6) is None
    known.put(entry("z", "b", expires=5), 0)
    known.expire(6)
    assert len(known) == 1


def test_a_flush_takes_what_it_covers_and_keeps_late_comers_out() -> None:
    known = ExactIndex(Quota(), lambda _: None)
    known.put(entry("tagged", asked=1), 0)
    known.put(entry("x", asked=1), 0)
    known.put(entry("y", asked=9), 0)
    assert {left.digest for left in known.flush(Flush("a", 5, tag="t"))} == {b"tagged"}
    assert {left.digest for left in known.flush(Flush("a", 5))} == {b"x"}
    known.put(entry("x", asked=4), 0)
    known.put(entry("x", "b", asked=4), 0)
    assert known.get(b"y", 0)
    assert [left and left.team for left in [known.get(b"x", 0)]] == ["b"]
    known.clear()
    known.put(entry("x", asked=4), 0)
    assert len(known) == 1


steps = st.lists(
    st.one_of(
        st.builds(entry, st.sampled_from("txyz"), st.sampled_from("ab"), size=st.integers(1, 4), asked=st.floats(0, 9)),
        st.builds(Flush, st.sampled_from("ab"), st.floats(0, 9), st.sampled_from([None, "t"])),
        st.sampled_from([b"t", b"x", b"y"]),
    ),
    max_size=30,
)


@given(steps)
def test_counts_stay_true_whatever_happens(changes: list[Entry | Flush | bytes]) -> None:
    alive: dict[bytes, Entry] = {}
    known = ExactIndex(Quota(entries=2, bytes=6), lambda left: alive.pop(left.digest))
    for change in changes:
        if isinstance(change, Entry):
            known.remove(change.digest)
            alive[change.digest] = change
            known.put(change, 1)
            if known.get(change.digest, 1) is None:
                alive.pop(change.digest, None)
        elif isinstance(change, Flush):
            known.flush(change)
        else:
            known.remove(change)
        assert len(known) == len(alive)
        assert known.size == sum(left.size for left in alive.values())
        assert all(known.get(digest, 1) is left for digest, left in alive.items())
