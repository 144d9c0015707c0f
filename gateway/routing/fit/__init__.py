"""Fits classifiers and plans to measured outcomes; offline, serving does not import it."""
