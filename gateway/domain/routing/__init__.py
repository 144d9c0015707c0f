"""Routes, strategies, and the facts about backends on which routing is based."""
