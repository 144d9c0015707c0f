"""Server-sent events: framing, and reading of streams."""
