"""The HTTP client for calling backends."""
