"""Groups the turns that must stay together. Determines which groups must not be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.domain.request import Turn


@dataclass(frozen=True, slots=True)
class Group:
    """Turns that are dropped or kept together. `turns`: their positions in `request.turns`, in ascending order."""

    turns: tuple[int, ...]
    kept: bool
    """Whether the group must not be dropped. True if the group contains the system prompt, the last user turn, or the
    newest exchange with tools. Also true if it contains, after the last user turn, a message with tool results and a
    user's text. Such a message does not count as a user turn."""


def groups(turns: Sequence[Turn]) -> list[Group]:
    """The groups, oldest first. A group is a set of turns that are dropped or kept together.

    Before the last user turn, a group is one exchange: a user turn and everything up to the next user turn. After the
    last user turn, a group is one step of the assistant with the results of its tool calls. A tool result always
    belongs to the group of the turn that called the tool, even if this turn is in an earlier exchange.
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
    """Index of the last user message. A message with tool results does not count. If there is no user message, returns
    the index of the last turn."""
    places = range(len(turns) - 1, -1, -1)
    return next((place for place in places if _spoken(turns[place])), len(turns) - 1)


def _spoken(turn: Turn) -> bool:
    return turn.role == "user" and not turn.results


def _join_results(turns: Sequence[Turn], found: _Union) -> None:
    """Join each tool result with the turn that called the tool. Ids may be used several times, so the nearest earlier
    call with the id is used."""
    callers: dict[str, int] = {}
    for place, turn in enumerate(turns):
        for result in turn.results:
            if (caller := callers.get(result)) is not None:
                found.join(caller, place)
        callers.update(dict.fromkeys(turn.calls, place))


class _Union:
    """Disjoint sets of indexes. The root of a set is the smallest index in the set."""

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
