"""A small random share of requests that the reference serves, as a baseline for comparison."""

from __future__ import annotations

import hashlib

from gateway.domain.request import CompletionRequest


class Holdout:
    """Draws them."""

    def __init__(self, share: float) -> None:
        """`share` 0..1 of requests; every one of them costs what the reference costs."""
        self._share = share
        self._held = 0

    def holdout(self, request: CompletionRequest) -> bool:
        """The same conversation always gets the same answer, so that a session does not flip between backends."""
        if not self._share:
            return False
        session = request.controls.session or request.last_user
        drawn = int.from_bytes(hashlib.blake2b(session.encode(), digest_size=4).digest()) / 2**32
        held = drawn < self._share
        self._held += held
        return held

    def stats(self) -> dict[str, int | float | str]:
        return {"held_out": self._held}
