"""Circuit breaker, concurrency slots, queue, hedging and drain of a backend."""
