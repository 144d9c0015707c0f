"""Estimates how hard a prompt is, by the packaged classifier."""
