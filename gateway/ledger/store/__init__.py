"""The ledger in SQL: one row per attempt, in hash chains."""
