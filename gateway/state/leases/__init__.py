"""Counters that workers share: each leases units ahead of need."""
