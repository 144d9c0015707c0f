"""Commands that run and examine a gateway."""
