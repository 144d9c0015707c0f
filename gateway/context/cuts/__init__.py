"""Leaves old tool outputs out of a request (a cut), if the session probably no longer needs them and this saves
money."""
