"""A trimming strategy that cuts the middle out of very long texts and marks the cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

LEAST_TOKENS = 96
"""Minimum tokens of a text after shortening. A shorter text would be useless."""
_MARKER_TOKENS = 24
_HEAD = 0.6
"""Share of the remaining text that comes from the beginning of the original text."""
_TRIES = 8


def level(sizes: Sequence[int], room: int) -> int | None:
    """The highest limit, in tokens, at which all texts fit into `room` tokens together. The limit applies to each text.
    Texts below the limit are not changed. `sizes`: tokens of each text.

    None if the texts do not fit even with a limit of `LEAST_TOKENS`.
    """
    if sum(min(size, LEAST_TOKENS) for size in sizes) > room:
        return None
    low, high = LEAST_TOKENS, max(sizes, default=LEAST_TOKENS)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def shorten(text: str, size: int, wanted: int, count: Callable[[str], int]) -> str:
    """The `text`, which has `size` tokens, with its middle cut out. The result has at most `wanted` tokens, as `count`
    counts them. `wanted` must be at least `LEAST_TOKENS`."""
    keep = int(len(text) * max(wanted - _MARKER_TOKENS, 0) / size)
    for _ in range(_TRIES):
        cut = _cut(text, keep, size)
        if count(cut) <= wanted:
            return cut
        keep = int(keep * 0.8)
    return _cut(text, 0, size)


def _cut(text: str, keep: int, size: int) -> str:
    head = int(keep * _HEAD)
    tail = keep - head
    left_out = max(1, round(size * (len(text) - keep) / len(text)))
    return f"{text[:head]}\n[… about {left_out} tokens left out here by the gateway …]\n{text[len(text) - tail :]}"
