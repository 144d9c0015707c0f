"""The ledger in SQL: one row per attempt, in chains of hashes."""
