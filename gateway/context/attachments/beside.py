"""Computes the tokens of the images and attachments of a request. There are three numbers: the maximum, for the budget;
the usual number, for forecasts; and the number to reserve in the context window."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from math import ceil

from gateway.context.attachments.find import find
from gateway.context.attachments.vendors import IMAGE_TOKENS, OTHER, Vendor, vendor_of
from gateway.context.attachments.weigh import TEXT_BYTES_PER_TOKEN, USUAL_TEXT_BYTES, known, most, usual
from gateway.domain.attachment import Attachment, AttachmentKind
from gateway.domain.backend import Backend
from gateway.domain.request import CompletionRequest
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached, ContextPlan


@dataclass(frozen=True, slots=True)
class _Part:
    """All images of one turn, or one attachment. `turn`: index of the turn."""

    turn: int
    kind: AttachmentKind
    most: int
    usual: int
    room: int
    """Tokens reserved in the window. 0 for an attachment of unknown size, because it may be small enough to fit."""
    doubt: int
    """The part of `room` that is only an estimate. A request is not refused because of estimated tokens."""


@dataclass(frozen=True, slots=True)
class Attachments:
    """All images and attachments of a request, with their numbers of tokens for one backend."""

    parts: tuple[_Part, ...]
    window: int

    @property
    def room(self) -> int:
        return sum(part.room for part in self.parts)

    def doubt(self, drop: Set[int] = frozenset()) -> int:
        """The number of tokens that are only estimated, without the attachments of the turns in `drop`."""
        return sum(part.doubt for part in self.parts if part.turn not in drop)

    def rooms(self) -> dict[int, int]:
        """Index of a turn → tokens reserved in the window for the turn's attachments. Images are not included."""
        found: dict[int, int] = {}
        for part in self.parts:
            if part.doubt:
                found[part.turn] = found.get(part.turn, 0) + part.room
        return found

    def plan(
        self, before: int, left: int, drop: frozenset[int] = frozenset(), replace: dict[int, str] | None = None
    ) -> ContextPlan:
        """The plan for a request. `before`: tokens of the request's text plus the tokens reserved for its attachments.
        `left`: this sum after turns were dropped (`drop`) and shortened (`replace`).

        A dropped attachment counts with the number of tokens that was reserved for it, and not with its maximum. So the
        reported savings contain only tokens that were really reserved.
        """
        parts = [part for part in self.parts if part.turn not in drop]
        attached = self._most(parts)
        after = left - sum(part.room for part in parts) + attached.total
        expected = min(sum(part.usual for part in parts), attached.total)
        return ContextPlan(after + before - left, after, drop, replace or {}, attached, expected)

    def _most(self, parts: list[_Part]) -> Attached:
        """The maximum number of tokens of each kind of attachment. If their sum exceeds the window, the window goes to
        sound first, because it costs most, then to images, then to documents.
        """
        left = self.window
        found: dict[AttachmentKind, int] = {"audio": 0, "image": 0, "document": 0}
        for kind in found:
            found[kind] = min(sum(part.most for part in parts if part.kind == kind), left)
            left -= found[kind]
        return Attached(**found) if left < self.window else NOTHING_ATTACHED


NOTHING = Attachments((), 0)


def beside(request: CompletionRequest, attachments: list[Attachment], backend: Backend) -> Attachments:
    """The `attachments` of the request with their sizes. An attachment that was not measured gets an estimated size.
    Images are only counted, not measured."""
    vendor = vendor_of("claude" if backend.kind == "anthropic" and not _names_claude(backend) else backend.model)
    window = backend.window_tokens or vendor.window
    parts = [
        _Part(turn.index, "image", turn.images * min(vendor.image, window), *(turn.images * IMAGE_TOKENS,) * 2, 0)
        for turn in request.turns
        if turn.images
    ]
    for turn, size in (request.asides or {}).items():
        told = min(ceil(size / TEXT_BYTES_PER_TOKEN), window)
        parts.append(_Part(turn, "document", told, min(ceil(size / USUAL_TEXT_BYTES), told), 0, 0))
    for each in attachments:
        expected = min(usual(each, vendor), most(each, vendor, window))
        room = expected if known(each) else 0
        parts.append(_Part(each.turn, each.kind, most(each, vendor, window), expected, room, room))
    return Attachments(tuple(parts), window)


def _names_claude(backend: Backend) -> bool:
    return "claude" in backend.model.lower()


def guesses(request: CompletionRequest, vendor: Vendor = OTHER) -> dict[int, int]:
    """Index of a turn → usual tokens of its attachments. The tokens are estimated from the attachments' bytes. No
    attachment is opened, so the function takes microseconds."""
    found: dict[int, int] = {}
    for each in find(request):
        found[each.turn] = found.get(each.turn, 0) + usual(each, vendor)
    return found
