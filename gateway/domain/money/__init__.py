"""Prices, usage, units without a price, budgets, and their calendar windows."""
