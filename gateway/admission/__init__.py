"""Admission: rate limits, load shedding, and budgets held before a call."""
