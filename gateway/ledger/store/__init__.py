"""The ledger in an SQL database. It has one row per attempt, and the rows form hash chains."""
