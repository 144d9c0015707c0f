"""Routes, strategies, and what is known of backends that they choose among."""
