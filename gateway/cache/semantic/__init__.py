"""Stored questions found by meaning: embedding, vector index, partitions per team."""
