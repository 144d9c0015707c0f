"""Answers kept for later requests that name them."""
