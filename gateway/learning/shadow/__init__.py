"""Comparison of backends on requests that were served."""
