"""Prices, usage, unpriced units, and the calendar windows of budgets."""
