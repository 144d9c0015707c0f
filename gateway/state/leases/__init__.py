"""Counters that workers share. Each worker leases units of a counter before it needs them."""
