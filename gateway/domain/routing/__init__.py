"""Routes, strategies, and data about backends."""
