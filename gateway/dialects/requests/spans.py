"""Searches the items of a request's conversation, and finds them in the bytes of its body. Nothing that is known from
an earlier request is searched again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.dialects.json_splice import Span, elements, find, skip_blanks
from gateway.domain.request import CompletionRequest


def item_spans(request: CompletionRequest) -> list[Span]:
    """The span of each item of the conversation in `request.raw`."""
    raw, notes = request.raw, request.notes
    if notes is None or not notes.ends or request.known_scan is None:
        start, _ = find(raw, request.input_field)[-1]
        return list(elements(raw, start))
    ends = notes.ends
    begins = [skip_blanks(raw, skip_blanks(raw, end) + 1) for end in ends[:-1]]
    return list(zip([notes.start, *begins], ends, strict=True))


def known_list(request: CompletionRequest) -> Mapping[str, Span]:
    """The field of the conversation with the span of its value in `request.raw`; empty if the positions are not
    known."""
    raw, notes = request.raw, request.notes
    if notes is None or not notes.ends or request.known_scan is None:
        return {}
    return {request.input_field: (raw.rindex(b"[", 0, notes.start), skip_blanks(raw, notes.ends[-1]) + 1)}


def any_item(request: CompletionRequest, test: Callable[[Any], bool]) -> bool:
    """Whether `test` is true for any item of the conversation. `test` must be a function of a module, and its result
    may depend on the item only."""
    items, notes, continued = request.body[request.input_field], request.notes, request.continued
    if notes is None or request.known_scan is None:  # without the scan, the items may have been replaced
        return any(map(test, items))
    if test in notes.absent:
        return False
    if continued is not None and test in continued.earlier.absent:
        items = items[continued.shared :]
    if any(map(test, items)):
        return True
    notes.absent.add(test)
    return False
