"""How the tables came to be, one numbered step after another."""

HEAD = "0012"
"""The newest migration (a test compares it with the versions)."""
