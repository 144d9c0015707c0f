"""Commands about routing, learning, cache and context."""
