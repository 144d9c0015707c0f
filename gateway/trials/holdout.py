"""The few requests that the reference serves whatever routing thinks, so that there is something to compare with."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from typing import Any

from gateway.domain.request import CompletionRequest

KEPT = 1000


class Holdout:
    """Implements `Sampler` of domain/protocols.py."""

    def __init__(self, share: float) -> None:
        """`share` 0..1 of requests; every one of them costs what the reference costs."""
        self._share = share
        self._samples: deque[Mapping[str, Any]] = deque(maxlen=KEPT)
        self._held = self._offered = 0

    def holdout(self, request: CompletionRequest) -> bool:
        """The same conversation always gets the same answer, so that a session does not flip between backends."""
        if not self._share:
            return False
        session = request.controls.session or request.last_user
        drawn = int.from_bytes(hashlib.blake2b(session.encode(), digest_size=4).digest()) / 2**32
        held = drawn < self._share
        self._held += held
        return held

    def offer(self, sample: Mapping[str, Any]) -> None:
        self._samples.append(sample)
        self._offered += 1

    def stats(self) -> dict[str, int | float | str]:
        return {"held_out": self._held, "offered": self._offered, "waiting": len(self._samples)}
