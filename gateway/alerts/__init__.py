"""Alerts on budgets, forecasts, anomalies and quality: detection and delivery."""
