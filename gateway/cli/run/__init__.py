"""Commands that start, show and copy a gateway."""
