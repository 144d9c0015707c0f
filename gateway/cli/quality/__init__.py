"""Commands about routing, learning, the cache and context."""
