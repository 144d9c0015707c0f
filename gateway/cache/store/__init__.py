"""Stored answers: the exact index, their bodies, writing, snapshots, invalidation."""
