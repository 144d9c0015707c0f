"""How the tables came to be, one numbered step after another."""

HEAD = "0014"
"""The newest migration (a test compares it with the versions)."""
