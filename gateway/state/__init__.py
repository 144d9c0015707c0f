"""One door to the Redis protocol, one to SQL."""
