"""Server-sent events: framing, and reading what a stream has said."""
