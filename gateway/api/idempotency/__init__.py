"""One answer per `Idempotency-Key`."""
