"""The HTTP endpoints of the API."""
