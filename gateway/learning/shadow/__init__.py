"""Compares backends on requests that have been served."""
