"""Policies and keys: who calls, and under which rules."""
