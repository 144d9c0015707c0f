"""Counts the tokens of a request. Trims a request that does not fit a backend's window or a team's limit."""
