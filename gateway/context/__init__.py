"""Counts a request's tokens, and trims what does not fit a backend's window or a team's limit."""
