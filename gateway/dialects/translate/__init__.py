"""Translators between dialects. They convert requests to the backend's dialect, and answers and streams to the client's
dialect."""
