"""Reports from the ledger: usage, savings, forecasts, FinOps exports."""
