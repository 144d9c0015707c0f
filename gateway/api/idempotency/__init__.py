"""Idempotent requests (`Idempotency-Key`)."""
