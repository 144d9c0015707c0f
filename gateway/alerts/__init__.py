"""Detects and delivers alerts about budgets, forecasts, anomalies and quality."""
