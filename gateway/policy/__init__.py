"""Policies and keys: the callers, and the rules for each."""
