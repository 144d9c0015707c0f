"""Estimates how hard a prompt is, with the packaged classifier."""
