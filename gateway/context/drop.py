"""A trimming strategy that drops the oldest groups of turns, and no more groups than needed."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.context.groups import Group


def drop_oldest(groups: Sequence[Group], sizes: Sequence[int], excess: int) -> frozenset[int]:
    """Indexes of the turns to drop so that at least `excess` tokens are saved. `sizes`: number of tokens of each
    turn.

    If all turns that may be dropped have fewer tokens together, all of them are returned.
    """
    dropped: set[int] = set()
    for group in groups:
        if excess <= 0:
            break
        if not group.kept:
            dropped.update(group.turns)
            excess -= sum(sizes[place] for place in group.turns)
    return frozenset(dropped)
