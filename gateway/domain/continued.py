"""Facts about the messages at the beginning of a conversation, which an earlier request has already sent. A later
request of the same API key uses the facts again if it begins with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import _Hash

    from gateway.domain.body_scan import BodyScan
    from gateway.domain.request import Turn


@dataclass(slots=True)
class Notes:
    """Facts about the items of one conversation. Later requests of the conversation use the facts again. Items are
    messages, or the items of `input`.
    """

    unique_keys: bool = False
    """Whether it was checked that no object in the items has a duplicate key."""
    no_references: bool = False
    """Whether it was checked that the whole body contains no reference that a policy must permit."""
    absent: set[Callable[[Any], bool]] = field(default_factory=set)
    """Tests that were false for every item."""
    declared: tuple[list[Any], str] = ([], "")
    """The values of the fields that are counted beside the items, such as `tools`, and their text."""
    start: int = 0
    """The position of the first item in the body."""
    ends: Sequence[int] = ()
    """The position after each item; empty if the positions are not known."""
    before: bytes = b""
    """The bytes that were hashed before the items. They include everything from which the hash was begun."""
    hashes: dict[int, _Hash] = field(default_factory=dict)
    """Number of items → the hash of `before` and so many items. Only for the last items."""


@dataclass(slots=True)
class Continued:
    """A parsed body whose conversation begins with items that an earlier request has sent."""

    body: dict[str, Any]
    """The parsed body. It is equal to the body that a parser returns for all bytes."""
    rest: bytes
    """A JSON object with the new items and, if they are not known either, the other fields of the body. In this object,
    the field with the conversation has another name."""
    scan: BodyScan
    shared: int
    """Number of known items."""
    turns: list[Turn]
    """The turns of the known items."""
    earlier: Notes
    """The notes about the earlier conversation, which begins with the known items."""
    notes: Notes
    """New notes about the whole conversation, with the positions of all items."""
