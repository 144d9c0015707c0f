"""Groups turns that must stay together, and marks those that must not be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.request import Turn


@dataclass(frozen=True, slots=True)
class Group:
    """Turns that go or stay together, as positions in `request.turns`, ascending."""

    turns: tuple[int, ...]
    kept: bool
    """System prompt, last user turn, what the user wrote beside tool results since then, or the newest exchange with
    tools."""


def groups(turns: Sequence[Turn]) -> list[Group]:
    """Oldest first. Before the last user turn a group is a whole exchange: what the user said and everything up to
    what the user said next. After it, every step of the assistant with the results of its tool calls is one.

    A tool result is always in the group of the turn that called for it, also across exchanges.
    """
    asked = last_user(turns)
    found = _Union(len(turns))
    anchor = -1
    for place, turn in enumerate(turns):
        if turn.role == "system" or place == asked:
            continue
        begins = turn.role == "assistant" if place > asked else _spoken(turn)
        if begins or anchor < 0 or anchor < asked < place:
            anchor = place
        else:
            found.join(anchor, place)
    _join_results(turns, found)
    never = {place for place, turn in enumerate(turns) if turn.role == "system" or (turn.instructs and place > asked)}
    never |= {asked, max(anchor, asked)}
    kept = {found.root(place) for place in never}
    return [Group(tuple(members), root in kept) for root, members in found.sets().items()]


def last_user(turns: Sequence[Turn]) -> int:
    """Place of the last user message (tool results do not count), else of the last turn."""
    places = range(len(turns) - 1, -1, -1)
    return next((place for place in places if _spoken(turns[place])), len(turns) - 1)


def _spoken(turn: Turn) -> bool:
    return turn.role == "user" and not turn.results


def _join_results(turns: Sequence[Turn], found: _Union) -> None:
    """Ids may be used again, so a result belongs to the nearest call before it."""
    callers: dict[str, int] = {}
    for place, turn in enumerate(turns):
        for result in turn.results:
            if (caller := callers.get(result)) is not None:
                found.join(caller, place)
        callers.update(dict.fromkeys(turn.calls, place))


class _Union:
    """Sets of places; the root of a set is its smallest member."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def root(self, place: int) -> int:
        while self._parent[place] != place:
            self._parent[place] = place = self._parent[self._parent[place]]
        return place

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self._parent[high] = low

    def sets(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place in range(len(self._parent)):
            found.setdefault(self.root(place), []).append(place)
        return found
