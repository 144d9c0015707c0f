"""Remembers which answers an end user or session has got, so that asking again in other words brings a new one."""

from __future__ import annotations

from collections import OrderedDict

from gateway.cache.entry import Found

_REMEMBERED = 16_384


class Repeats:
    """Per worker: of answers that another worker gave by meaning nothing is known here, of stored ones their asker."""

    def __init__(self) -> None:
        self._given: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def again(self, asker: str, found: Found) -> bool:
        """Did `asker` get this answer before? Nobody did whom the request does not name."""
        return bool(asker) and (found.asker == asker or (asker, found.digest) in self._given)

    def gave(self, asker: str, digest: bytes) -> None:
        if asker:
            self._given[asker, digest] = None
            if len(self._given) > _REMEMBERED:
                self._given.popitem(last=False)
