"""Finds the items of a request's conversation in the bytes of its body. If their positions are known from an earlier
request, nothing is searched."""

from __future__ import annotations

from collections.abc import Mapping

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
