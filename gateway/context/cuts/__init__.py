"""Cuts: leave old tool outputs out of a request, if the session probably no longer needs them and this saves money."""
