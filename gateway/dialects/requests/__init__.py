"""Functions that requests of all dialects share: validation, limits, counts, forwarding of headers and query."""
