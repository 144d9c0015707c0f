"""Backends: providers, HTTP client, attempts, resilience, cascades."""
