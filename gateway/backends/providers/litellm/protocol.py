"""Headers and paths, in addition to OpenAI's API, that workers and litellm's process use to communicate."""

from __future__ import annotations

BASE, TIMEOUT = b"x-litellm-base", b"x-litellm-timeout"
"""Request headers: the base URL of the provider, and the maximum seconds of the call."""
FAILURE = b"x-litellm-failure"
"""Response header. It is present if the provider sent no response, and contains the reason: `timeout`, `unreachable` or
`garbage`."""
LOAD_PATH, HEALTH_PATH = "/load", "/health"
