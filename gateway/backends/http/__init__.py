"""The HTTP client of backends' calls."""
