"""The HTTP API: authentication, routes, protocol, idempotency."""
