"""Detects the alerts that are due."""
