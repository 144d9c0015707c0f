"""Builds the ledger row of an attempt whose worker died before the attempt ended. The values come from the worker's
journal and progress slots. Missing values are estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.domain.money.pace import FIRST_FRAME_BYTES, streamed_tokens
from gateway.domain.money.usage import Usage, interrupted, with_unseen
from gateway.ledger.prices.applied import price_of
from gateway.ledger.rows import MOST_PICO, TOKENS, Row, believable


@dataclass(frozen=True, slots=True)
class Mark:
    """The progress of a stream when its worker last recorded it. `at`: Unix time of the record in seconds; None if
    unknown."""

    at: float | None
    chunks: int
    output_bytes: int
    spoke_at: float | None = None
    """Unix time in seconds at which the first text arrived; None if unknown."""


class BackendPace(NamedTuple):
    """A backend's speed, as its worker last recorded it."""

    plain: float
    """Maximum tokens per second of answers that are not streamed; 0 if unknown."""
    hidden: float
    """Maximum tokens per second that a stream generates before its first text; 0 if unknown."""
    frame_bytes: float
    """Number of bytes of a streamed event, without the event's text."""
    most: int | None
    """Maximum tokens of one answer; None if unknown."""

    def or_else(self, before: BackendPace) -> BackendPace:
        """A copy of these figures. Each unknown figure is replaced by the figure in `before`, an earlier record."""
        frame_bytes = before.frame_bytes if self.frame_bytes == FIRST_FRAME_BYTES else self.frame_bytes
        return BackendPace(self.plain or before.plain, self.hidden or before.hidden, frame_bytes, self.most)


def classes_of(usage: Usage) -> dict[str, Any]:
    """The tokens of `usage` as a dictionary, token class → tokens, for a progress record in the journal. Classes
    without tokens are omitted. The dictionary is empty if the input tokens are unknown or a number is out of range."""
    counts = {name: getattr(usage, name) for name in TOKENS} if usage.all_input and believable(usage) else {}
    return {name: tokens for name, tokens in counts.items() if tokens}


def orphan(
    opened: dict[str, Any],
    entry: dict[str, Any],
    mark: Mark | None,
    reported: dict[str, Any] | None = None,
    known: BackendPace | None = None,
    ended_at: float | None = None,
) -> Row:
    """Build the row of an attempt whose worker died; its outcome is *interrupted*. The output that had not arrived yet
    is estimated at the highest likely speed, so that a hard budget is not overrun.

    `opened`: the row's first fields. `entry`: the line that was written to the journal before the call (earlier
    versions wrote `pico` instead of `prices`). `mark`: the last known progress. `reported`: token class → tokens that
    the backend had reported. `known`: the backend's speed. `ended_at`: Unix time at which the worker died.
    """
    called_at = opened["at"] + opened.get("waited_ms", 0) / 1000
    frame_bytes = FIRST_FRAME_BYTES if known is None else known.frame_bytes
    delivered = 0
    if mark is not None:
        delivered = streamed_tokens(mark.chunks, mark.output_bytes, frame_bytes, begun=mark.chunks > 0)
        if (most := entry.get("cap")) is not None:
            delivered = max(mark.chunks, min(delivered, most))
    usage, cost = interrupted(Usage(**reported) if reported else None, entry["tokens"], delivered), None
    silent_until = mark.spoke_at if mark is not None and delivered else ended_at
    if known is not None and silent_until is not None:
        unseen = int((known.hidden if opened.get("stream") else known.plain) * max(0.0, silent_until - called_at))
        usage = with_unseen(usage, unseen, entry.get("cap", known.most), plain=not opened.get("stream"))
    if "prices" in entry:
        cost = price_of(entry["prices"]).cost(usage)
    elif "pico" in entry:
        cost = entry["pico"][0] + delivered * entry["pico"][1]
    return Row(
        **opened,
        outcome="interrupted",
        error="the gateway's worker ended",
        **{name: getattr(usage, name) for name in TOKENS},
        estimated=True,
        cost_pico=None if cost is None else min(cost, MOST_PICO),
        price_source=entry.get("source", ""),
        prices=entry.get("prices", ""),
        received_bytes=0 if mark is None else mark.output_bytes,
        duration_ms=None if mark is None or mark.at is None else round((mark.at - called_at) * 1000, 3),
    )
