"""Remembers which answers an end user or session has had, so that a question repeated in other words gets a new
answer."""

from __future__ import annotations

from collections import OrderedDict

from gateway.cache.entry import Found

_REMEMBERED = 16_384


class Repeats:
    """Answers that askers have had in this worker. Semantic hits that other workers served are not known here, but the
    asker of each stored question is."""

    def __init__(self) -> None:
        self._given: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def again(self, asker: str, found: Found) -> bool:
        """Whether `asker` has had this answer before. Always false for an unknown asker."""
        return bool(asker) and (found.asker == asker or (asker, found.digest) in self._given)

    def gave(self, asker: str, digest: bytes) -> None:
        if asker:
            self._given[asker, digest] = None
            if len(self._given) > _REMEMBERED:
                self._given.popitem(last=False)
