"""Serves a small random share of requests with the reference, for comparison."""

from __future__ import annotations

import hashlib

from gateway.domain.request import CompletionRequest


class Holdout:
    """Selects at random the requests that the reference serves for comparison. This group of requests is called the
    holdout."""

    def __init__(self, share: float) -> None:
        """`share`: the share of requests to select, 0..1. Each selected request costs as much as the reference."""
        self._share = share
        self._held = 0

    def holdout(self, request: CompletionRequest) -> bool:
        """Return whether the reference must serve this request. The result is the same for a whole conversation, so
        that a session does not alternate between backends."""
        if not self._share:
            return False
        session = request.controls.session or request.agent_session or request.last_user
        drawn = int.from_bytes(hashlib.blake2b(session.encode(), digest_size=4).digest()) / 2**32
        held = drawn < self._share
        self._held += held
        return held

    def stats(self) -> dict[str, int | float | str]:
        return {"held_out": self._held}
