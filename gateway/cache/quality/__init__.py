"""Measures how many hits are wrong, and sets the threshold accordingly."""
