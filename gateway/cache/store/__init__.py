"""Stored answers: the exact index, the bodies, writing to the state server, snapshots, and invalidation."""
