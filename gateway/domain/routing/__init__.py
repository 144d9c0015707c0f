"""Routes, strategies, and what is known about backends."""
