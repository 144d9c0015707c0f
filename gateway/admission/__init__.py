"""May a request start, and may it cost this much."""
