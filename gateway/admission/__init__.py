"""Admission: rate limits, load shedding, and budgets that are held before a call."""
