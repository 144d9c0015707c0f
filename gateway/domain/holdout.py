"""Selects sessions whose requests are never shortened (held-out sessions), so that the other sessions can be compared
with them."""

from __future__ import annotations

from hashlib import blake2b

_DRAWN_BYTES = 4


def is_held_out(team: str, session: str, share: float) -> bool:
    """Return whether a session is held out, so that its requests are never shortened. `share`: share of the team's
    sessions that are held out, 0..1. The result depends only on the arguments, so that all workers and reports agree. A
    session without a name is never held out."""
    if not session or not share:
        return False
    digest = blake2b(f"{team}\0{session}".encode("utf-8", "surrogatepass"), digest_size=_DRAWN_BYTES).digest()
    return int.from_bytes(digest) / 256.0**_DRAWN_BYTES < share
