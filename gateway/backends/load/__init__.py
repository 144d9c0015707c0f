"""Measures the load of the servers behind backends."""
