"""Reads the client's position in a trace from the W3C Trace Context headers `traceparent` and `tracestate`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LONGEST_PARENT = 512
_LONGEST_STATE = 512
"""Maximum characters of `tracestate`. The standard requires at least 512 characters to be kept."""
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class TraceParent:
    trace_id: int
    span_id: int
    sampled: bool
    """Whether the client exports its own part of the trace."""
    state: str
    """The header `tracestate`; empty if it is missing or too long."""


def read_parent(headers: Mapping[bytes, bytes]) -> TraceParent | None:
    """The position in the trace that `headers` contain (names in lower case); None if the headers are missing or
    invalid."""
    header = headers.get(b"traceparent")
    if header is None or len(header) > _LONGEST_PARENT or (found := _PARENT.fullmatch(header)) is None:
        return None
    version, trace, span, flags, more = found.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if version == b"ff" or (version == b"00" and more) or not trace_id or not span_id:
        return None
    state = headers.get(b"tracestate", b"")
    kept = state.decode("latin-1") if len(state) <= _LONGEST_STATE else ""
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), kept)
