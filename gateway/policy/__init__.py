"""Policies and keys. They identify the caller and the rules for the caller's requests."""
