"""Computes what providers charge for a prompt, by the rules of their prompt caches. Does no I/O."""
