"""Policies and keys: who calls, under which rules."""
