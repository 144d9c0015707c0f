"""Compares backends on requests that were served."""
