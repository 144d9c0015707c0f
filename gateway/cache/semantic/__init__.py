"""Finds stored questions by meaning: embedding, vector index, partitions per team."""
