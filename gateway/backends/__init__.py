"""Getting an answer: the HTTP client, one door per kind of backend, attempts, health, escalation."""
