"""Finds the end user's name in a request, and computes the pseudonym that is stored instead of the name."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from gateway.domain.text.truncation import cut_apart

MOST_CHARACTERS = 512
"""Maximum characters of a name that are kept. A longer name is cut and gets a hash of the whole name at its end."""
PREFIX = "eu_"
_NAMING = frozenset({"safety_identifier", "user", "metadata"})
"""Fields that may name the end user."""
_DIGEST_BYTES = 14


def named(body: dict[str, Any], header: str = "") -> str:
    """The name of the end user in a request; empty if there is none. `header`: a name in the headers, used if the body
    has none. Claude Code's suffix `_session_…` is removed, because otherwise each session would count as another user.
    """
    if not header and _NAMING.isdisjoint(body):  # most requests
        return ""
    name = body.get("safety_identifier") or body.get("user")
    if name is None and type(metadata := body.get("metadata")) is dict:
        name = metadata.get("user_id")
        if type(name) is str:
            name = name.partition("_session_")[0]
    return (
        cut_apart(name, MOST_CHARACTERS)
        if type(name) is str and name
        else header and cut_apart(header, MOST_CHARACTERS)
    )


class Pseudonyms:
    """Computes the pseudonyms of end users. The same name always gets the same pseudonym. Nobody can compute a
    pseudonym without the secret."""

    def __init__(self, secret: bytes) -> None:
        """`secret`: the secret for the pseudonyms, at most 64 bytes."""
        self._secret = secret

    def of(self, name: str) -> str:
        digest = blake2b(name.encode(errors="replace"), key=self._secret, digest_size=_DIGEST_BYTES)
        return PREFIX + digest.hexdigest()
