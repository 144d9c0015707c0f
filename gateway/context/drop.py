"""Trimming strategy: drops the oldest groups, and only as many as needed."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.context.groups import Group


def drop_oldest(groups: Sequence[Group], sizes: Sequence[int], excess: int) -> frozenset[int]:
    """Indexes of the turns to drop so that `excess` tokens are saved. If all droppable turns together are not enough,
    returns all of them.

    `sizes`: tokens of each turn.
    """
    dropped: set[int] = set()
    for group in groups:
        if excess <= 0:
            break
        if not group.kept:
            dropped.update(group.turns)
            excess -= sum(sizes[place] for place in group.turns)
    return frozenset(dropped)
