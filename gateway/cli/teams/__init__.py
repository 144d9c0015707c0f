"""Commands about teams: policies and keys."""
