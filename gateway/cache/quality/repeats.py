"""Remembers which answers each end user or session has had. A sender who asks the same question again in other
words must get a new answer.
"""

from __future__ import annotations

from collections import OrderedDict

from gateway.cache.entry import Found

_REMEMBERED = 16_384


class Repeats:
    """The answers that each sender (end user or session) has had. This object does not know the semantic hits of other
    workers."""

    def __init__(self) -> None:
        self._given: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def again(self, asker: str, found: Found) -> bool:
        """Whether `asker` has already had the answer of `found`. False if the asker is unknown."""
        return bool(asker) and (found.asker == asker or (asker, found.digest) in self._given)

    def gave(self, asker: str, digest: bytes) -> None:
        if asker:
            self._given[asker, digest] = None
            if len(self._given) > _REMEMBERED:
                self._given.popitem(last=False)
