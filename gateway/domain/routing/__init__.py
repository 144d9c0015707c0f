"""Routes, strategies, and what is known of the backends that they choose among."""
