"""The ledger records the cost of each call. This package has its prices, journal, SQL store and reports."""
