"""Reports from the ledger: usage, savings, forecasts and exports for financial tools (FinOps)."""
