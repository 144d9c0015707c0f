"""Commands about spend, prices and the ledger."""
