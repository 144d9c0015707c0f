"""Fits classifiers and plans to measured outcomes, offline. Serving does not import it."""
