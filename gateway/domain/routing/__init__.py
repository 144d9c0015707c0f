"""Routes, strategies, and facts about backends that routing uses."""
