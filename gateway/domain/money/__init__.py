"""Prices, usage, units without a price, and the calendar windows that budgets count in."""
