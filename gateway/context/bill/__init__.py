"""Computes what providers charge for a prompt, by the rules of their prompt caches. No I/O."""
