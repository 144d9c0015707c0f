"""Learns in the background from comparisons of backends, from feedback, and from trials of plans."""
