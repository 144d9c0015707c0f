"""Formats the result of testing a backend as one line for people."""

from __future__ import annotations

from gateway.backends.reachability import Reached


def mark(reached: Reached) -> str:
    """One line for people that says whether a backend answered."""
    if reached.trouble:
        return f"✗ {reached.name}: {reached.trouble}"
    took = "" if reached.took_ms is None else f" ({reached.took_ms:.0f} ms)"
    if reached.doubt:
        return f"! {reached.name}: {reached.doubt}{took}; check its `model`"
    return f"✓ {reached.name}: {reached.note or 'answers'}{took}"
