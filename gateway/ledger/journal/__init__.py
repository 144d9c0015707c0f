"""Each worker's append-only files: an attempt is on disk before it costs."""
