"""The prices that providers charge for a prompt by the rules of their prompt caches. Pure functions of values."""
