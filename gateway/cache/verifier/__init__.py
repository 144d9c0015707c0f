"""Checks whether two questions have the same answer: the last check before a semantic hit."""
