"""Computes the input tokens of a request's documents, images and recordings."""
