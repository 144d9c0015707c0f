"""The end user named in a request, and the pseudonym that is stored instead."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from gateway.domain.text.truncation import cut_apart

MOST_CHARACTERS = 512
"""Most characters of a name that are kept; a longer name ends with a hash of the whole."""
PREFIX = "eu_"
_DIGEST_BYTES = 14


def named(body: dict[str, Any]) -> str:
    """`safety_identifier` or `user` as in OpenAI's dialects, or `metadata.user_id` as in Anthropic's; otherwise empty.

    Claude Code appends `_session_…`, which is removed: otherwise each session would be another end user.
    """
    name = body.get("safety_identifier") or body.get("user")
    if name is None and type(metadata := body.get("metadata")) is dict:
        name = metadata.get("user_id")
        if type(name) is str:
            name = name.partition("_session_")[0]
    return cut_apart(name, MOST_CHARACTERS) if type(name) is str else ""


class Pseudonyms:
    """Computes pseudonyms. A name always has the same one, which can be computed only with the secret."""

    def __init__(self, secret: bytes) -> None:
        """`secret`: at most 64 bytes."""
        self._secret = secret

    def of(self, name: str) -> str:
        digest = blake2b(name.encode(errors="replace"), key=self._secret, digest_size=_DIGEST_BYTES)
        return PREFIX + digest.hexdigest()
