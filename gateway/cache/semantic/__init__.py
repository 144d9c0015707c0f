"""Finds stored questions by meaning: embedding, vector index, partitions of comparable questions."""
