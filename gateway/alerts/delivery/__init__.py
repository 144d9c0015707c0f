"""Delivery of alerts to receivers."""
