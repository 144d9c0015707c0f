"""Keeps prompts in providers' caches during the pauses of sessions."""
