"""Cuts: old tool outputs that a session probably no longer needs are left out where that pays."""
