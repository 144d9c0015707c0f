"""Keeps conversations on the backend whose cache has their prefix."""
