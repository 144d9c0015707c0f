"""Identical requests in progress share one call, in a worker, on a host and between hosts."""
