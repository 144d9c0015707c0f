"""Fits classifiers and plans to measured outcomes, offline. The serving code does not import this package."""
