"""The ledger: prices, journal, SQL store, reports."""
