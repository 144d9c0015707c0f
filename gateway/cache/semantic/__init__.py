"""Finds stored questions by their meaning, with an embedder and a vector index. Only questions in the same partition
are compared."""
