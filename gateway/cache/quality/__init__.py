"""Measures how many hits are wrong, and sets the minimum score of a hit accordingly."""
