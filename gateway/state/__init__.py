"""Shared state: the Redis protocol, leased counters, SQL."""
