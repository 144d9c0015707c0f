"""Prices, usage, unpriced units, budgets, and their calendar windows."""
