"""Selects sessions from which the gateway leaves nothing out, so that the others can be compared with them."""

from __future__ import annotations

from hashlib import blake2b

_DRAWN_BYTES = 4


def is_held_out(team: str, session: str, share: float) -> bool:
    """Whether a session of a team belongs to the `share` (0..1) of sessions that are held out. The result depends only
    on the arguments, so every worker and every report gets the same result. A session without a name is never held
    out."""
    if not session or not share:
        return False
    digest = blake2b(f"{team}\0{session}".encode("utf-8", "surrogatepass"), digest_size=_DRAWN_BYTES).digest()
    return int.from_bytes(digest) / 256.0**_DRAWN_BYTES < share
