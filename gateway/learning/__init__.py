"""Learns in the background: comparisons of backends, feedback, trials of plans."""
