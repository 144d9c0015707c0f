"""Admission: rate limits, load shedding, and budgets on which money is held before a call."""
